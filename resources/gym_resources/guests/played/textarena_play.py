# pyright: reportMissingImports=false
"""Plays a game of TextArena.

Source: textarena 0.7, ``textarena.core``. A game may ask Python's global generator before it is seeded by
``reset``, so that it is seeded before the game is made.
"""

from __future__ import annotations

import importlib
import random
from typing import Any, NamedTuple, cast

import msgspec
import textarena
from gym_runtime import ResourceError, Task, UsageError

from gym_resources.guests.played import named_code
from gym_resources.guests.played.fork_messages import Asked, Given, Played
from gym_resources.guests.played.script import Script

OPPONENT = "opponent"
_OWN = ("players", "seat", "nltk", "size", "first_seed")
_REGISTRY: dict[str, Any] = importlib.import_module("textarena.envs.registration").ENV_REGISTRY


class Seed(msgspec.Struct):
    seed: int


class GameTask(Task):
    """A row."""

    textarena: Seed


class Game(NamedTuple):
    """What an address names.

    Attributes:
        module: of the game.
        settings: its own.
    """

    name: str
    module: str
    players: int
    seat: int
    nltk: str
    settings: dict[str, Any]


def game_of(name: str, settings: dict[str, Any]) -> Game:
    """The game of an address.

    Raises:
        UsageError: there is no game of this name, or a setting does not fit.
    """
    if name not in _REGISTRY:
        near = [known for known in _REGISTRY if known.lower().startswith(name.lower()[:4])]
        raise UsageError(f"textarena has no game '{name}'; it has {', '.join(near[:8]) or 'others'}")
    players, seat = settings.get("players", 1), settings.get("seat", 0)
    if not (isinstance(players, int) and isinstance(seat, int) and 0 <= seat < players):
        raise UsageError(f"textarena:{name}: players is a number above 0, and seat one of 0 to players - 1")
    module = str(_REGISTRY[name].entry_point).partition(":")[0]
    own = {key: value for key, value in settings.items() if key not in _OWN}
    return Game(name, module, players, seat, str(settings.get("nltk", "")), own)


def checked(name: str, settings: dict[str, Any]) -> Game:
    """The game of an address, which begins here.

    Raises:
        UsageError: as `game_of`, or the game does not begin.
    """
    game = game_of(name, settings)
    state = random.getstate()
    try:
        begun(game, 0)
    except LookupError as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip(" *")), str(error))
        remedy = "some games need NLTK's word lists: &nltk=FOLDER names a folder with them"
        raise UsageError(f"textarena:{name} does not begin: {first}; {remedy}") from error
    except Exception as error:  # whatever a game raises
        text = f"{type(error).__name__}: {error}"[:300]
        raise UsageError(f"textarena:{name} does not begin with players={game.players}: {text}") from error
    finally:
        random.setstate(state)
    return game


def begun(game: Game, seed: int) -> Any:
    """The game, reset."""
    if game.nltk:
        import nltk

        nltk.data.path.insert(0, game.nltk)
    random.seed(seed)
    env = cast("Any", textarena).make(game.name, **game.settings)
    env.reset(num_players=game.players, seed=seed)
    return env


def play(address: str, row: bytes, given: list[Given], cut: bool) -> Played:
    """Play a rollout, in a fork."""
    script = Script(given, cut=cut)
    return script.play(row, lambda: _play(address, row, script))


def _play(address: str, row: bytes, script: Script) -> Played:
    game = game_of(*named_code.parse(address))
    env = begun(game, msgspec.json.decode(row, type=GameTask).textarena.seed)
    heard = [""] * game.players
    said: list[list[dict[str, Any]]] = [[] for _ in range(game.players)]
    done = False
    while not done:
        player, text = cast("tuple[int, str]", env.get_observation())
        # Most games show all that was said so far each time; then only what is new.
        new = text.removeprefix(heard[player]) if heard[player] else text
        heard[player] = text
        items: list[dict[str, Any]] = [{"role": "user", "content": new.strip() or "It is your turn."}]
        said[player] += items
        if player == game.seat:
            reply = script.answer(Asked(items=items))
            if reply is None:
                return Played(digests=[], fields={"textarena_ended": "cut off"})
        else:
            reply = script.answer(Asked(role=OPPONENT, items=said[player]))
            assert reply is not None
        said[player] = [*said[player], {"role": "assistant", "content": reply.all_text}]
        done, _ = env.step(reply.all_text)
    rewards, info = env.close()
    if rewards is None or game.seat not in rewards:
        raise ResourceError(f"{game.name} has ended without a reward for seat {game.seat}")
    about = info.get(game.seat, {})
    fields = {
        "textarena_ended": str(about.get("reason", ""))[:500],
        "textarena_invalid_move": bool(about.get("invalid_move", False)),
        "textarena_turns": int(about.get("turn_count", 0)),
    }
    components = {f"seat_{seat}": float(reward) for seat, reward in rewards.items()}
    return Played(digests=[], reward=float(rewards[game.seat]), components=components, fields=fields)
