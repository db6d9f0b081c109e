"""The output layer of a vLLM for CPUs whose embeddings are tied, packed again after a reload.

vLLM for CPUs packs each linear layer's weights when they are loaded. A model with tied embeddings has no
weights of its own for the output layer, so a reload passes it by: it goes on with the packed weights of the
first embedding, while every other layer has the new ones. On other devices nothing is packed and the layer
reads the embedding's own, new weights. Source: vLLM 0.32, ``model_loader/reload/layerwise.py``
(``finalize_layerwise_processing``) and ``layers/vocab_parallel_embedding.py``.

vLLM's workers import this module by its name; it needs nothing but vLLM.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXTENSION = "gym_models.vllm_engine.output_layer.OutputLayer"
PACK = "pack_output_layer"


class OutputLayer:
    """Adds a method to vLLM's workers: ``--worker-extension-cls`` names this class."""

    model_runner: Any

    def pack_output_layer(self) -> None:
        """Pack the output layer's weights as they are now. Idempotent.

        Raises:
            TypeError: they are quantized, and packing them twice would spoil them.
        """
        layers = import_module("vllm.model_executor.layers.vocab_parallel_embedding")
        for layer in self.model_runner.get_model().modules():
            if isinstance(layer, layers.ParallelLMHead):
                if not isinstance(layer.quant_method, layers.UnquantizedEmbeddingMethod):
                    raise TypeError("the output layer is quantized")
                layer.quant_method.process_weights_after_loading(layer)
