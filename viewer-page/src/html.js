// The template tag of all views. Values become text nodes and attributes: nothing that a model wrote is ever markup.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
