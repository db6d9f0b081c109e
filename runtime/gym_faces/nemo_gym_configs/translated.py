"""A configuration of NeMo Gym as commands and files of the runtime, with what could not be carried over.

An agent of the configuration becomes a `gym-runtime run` for each of its datasets; its model and the models
in roles become a system's file; settings of its resources server become a file that serves the environment
under the server's name. Keys are never copied, only the names of the variables that hold them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from gym_runtime import Environment
from gym_runtime.environment import LoadedEnvironment, catalogue, with_settings
from gym_runtime.errors import UsageError

from gym_faces.nemo_gym_configs.yaml_files import Document, References, found, given, listed

AGENTS, SERVERS, MODELS = "responses_api_agents", "resources_servers", "responses_api_models"
POLICY = "policy"
DATA = Path("data")

_WIRING = {"entrypoint", "host", "port", "num_workers", "domain", "verified", "description", "value"}
"""How NeMo Gym starts and lists a server: nothing is lost with it."""
_NO_NAME = re.compile(r"[^\w-]+")
_SECRET = ("api_key", "token", "secret", "password")
_SAMPLING = {
    "temperature": "--temperature",
    "top_p": "--top-p",
    "max_output_tokens": "--max-output-tokens",
}
_RUN = {
    "limit": "--limit",
    "num_repeats": "--repeats",
    "num_samples_in_parallel": "--concurrency",
    "output_jsonl_fpath": "--output",
}
_SWITCHES = {"num_repeats_add_seed": "--seed-repeats", "resume_from_cache": "--resume"}
_TOP = {"wandb_project": "--track=wandb", "mlflow_tracking_uri": "--track=mlflow"}
OPTIONS = {
    *(*_RUN, *_SWITCHES, *_TOP),
    *("responses_create_params", "skip_verification", "skip_verification_reward", "hf_token"),
}
"""What a configuration may have at its top."""
_AGENT_OPTIONS = {
    "max_time_seconds": "max_time_s",
    "no_tool_call_nudge": "nudge",
    "tool_call_timeout": "tool_timeout_s",
    "model_call_timeout": "model_timeout_s",
    "context_reset_tokens": "context_reset_tokens",
    "context_reset_keep_rounds": "context_reset_keep_rounds",
    "max_reset_count": "max_reset_count",
    "done_tools": "done_tools",
    "truncate_on_overflow": "truncate_on_overflow",
    "max_reflections": "max_reflections",
    "max_subtasks": "max_subtasks",
    "num_parallel_paths": "num_parallel_paths",
}
_OWN_LOOPS = {"simple_agent", "gymnasium_agent", "aviary_agent", "non_executing_simple_agent"}
"""Agents of NeMo Gym whose loop an environment's own agent is."""
_PROVIDERS = {
    "openai_model": "openai",
    "inference_provider": "openai",
    "litellm_model": "litellm",
    "azure_openai_model": "azure",
    "vllm_model": "vllm",
    "local_vllm_model": "vllm",
    "genrm_model": "vllm",
}
_MODEL_NAMES = ("openai_model", "model", "model_name", "azure_deployment")
_MODEL_URLS = ("openai_base_url", "base_url", "azure_endpoint")
_MODEL_KEYS = ("openai_api_key", "api_key", "azure_api_key")
_MODEL_FIELDS = {
    "extra_body": "extra_body",
    "openai_default_headers": "headers",
    "max_concurrent_requests": "max_concurrent_requests",
    "num_concurrent_requests": "max_concurrent_requests",
}


class Remark(msgspec.Struct, frozen=True):
    """What could not be carried over: the dotted path in the configuration, and why or what to do."""

    where: str
    what: str


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration has become.

    Attributes:
        commands: to be run from the working directory, each a list of words.
        files: their texts, by their paths.
        remarks: a line for each part that was not carried over.
    """

    commands: list[list[str]]
    files: dict[Path, str]
    remarks: list[Remark]

    @property
    def lines(self) -> list[str]:
        """The commands as a shell reads them."""
        return [shlex.join(command) for command in self.commands]


def translate(document: Document, near: list[Path], folder: Path) -> Imported:
    """Read a configuration whose files have been put together.

    Args:
        near: the configuration's files; paths in it are looked for above them.
        folder: where the files will be.

    Raises:
        UsageError: it configures no agent and no model.
    """
    return _Translation(document, near, folder).whole()


def stale(folder: Path, imported: Imported) -> list[Path]:
    """Files of an earlier import in a folder that this one has not written."""
    starts = tuple(text.encode() for text in ("environment = ", "[[pools]]"))

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(20).startswith(starts)

    there = sorted(path for path in folder.glob("*.toml") if path not in imported.files and path.is_file())
    return [path for path in there if ours(path)]


class _Instance(msgspec.Struct, frozen=True):
    """A server of the configuration: its kind, the program that it runs, its settings."""

    name: str
    kind: str
    program: str
    settings: Document

    @property
    def path(self) -> str:
        return f"{self.name}.{self.kind}.{self.program}"


class _Translation:
    def __init__(self, document: Document, near: list[Path], folder: Path) -> None:
        self._references = References(document)
        self._near, self._folder = near, folder
        self._raw = document
        self._remarks: list[Remark] = []
        self._files: dict[Path, str] = {}
        self._instances = {name: one for name in document if (one := self._instance(name))}

    def whole(self) -> Imported:
        shared = self._run_options()
        agents = [one for one in self._instances.values() if one.kind == AGENTS]
        commands = [command for agent in agents for command in self._agent(agent, shared)]
        models = [one for one in self._instances.values() if one.kind == MODELS]
        if not agents and models:
            self._system({POLICY: models[0]})
        if not agents and not models:
            raise UsageError("the configuration has no agent (responses_api_agents) and no model")
        return Imported(commands=commands, files=self._files, remarks=list(dict.fromkeys(self._remarks)))

    def _note(self, where: str, what: str) -> None:
        self._remarks.append(Remark(where, what))

    def _instance(self, name: str) -> _Instance | None:
        value = self._raw[name]
        if not isinstance(value, dict):
            return None
        for kind in (AGENTS, SERVERS, MODELS):
            programs = cast("Document", value).get(kind)
            if isinstance(programs, dict) and len(cast("Document", programs)) == 1:
                ((program, settings),) = cast("Document", programs).items()
                followed = self._references.followed(settings)
                settings = cast("Document", followed) if isinstance(followed, dict) else {}
                return _Instance(name, kind, program, settings)
        return None

    # The run's own settings, at the top of the configuration

    def _run_options(self) -> list[str]:
        options: list[str] = []
        for name, raw in self._raw.items():
            if name in self._instances or name in self._references.used:
                continue
            value = self._references.followed(raw)
            if name in _RUN and (name == "output_jsonl_fpath" or _counts(value)):
                options += [_RUN[name], str(value)]
            elif name in _RUN:
                self._note(name, f"{_RUN[name]} wants a whole number of at least 1, and not {value}")
            elif name in _SWITCHES:
                options += [_SWITCHES[name]] if value else []
            elif name in _TOP:
                options.append(_TOP[name])
                self._note(name, f"set {name.upper()} for the tracker to find it")
            elif name == "responses_create_params" and isinstance(value, dict):
                options += self._sampling(name, cast("Document", value))
            elif name == "skip_verification":
                reward = self._references.followed(self._raw.get("skip_verification_reward") or 0.0)
                options += ["--skip-verification", str(reward)] if value else []
            elif name == "hf_token":
                self._note(name, "not copied: set HF_TOKEN in the environment of 'gym-runtime prepare'")
            elif name != "skip_verification_reward":
                self._note(name, "nothing here corresponds to it")
        return options

    def _sampling(self, where: str, said: Document) -> Iterator[str]:
        for name, value in said.items():
            if name in _SAMPLING and _plain(value):
                yield from (_SAMPLING[name], str(value))
            elif name != "input":
                self._note(f"{where}.{name}", "not an option of a run; put it into the rows")

    # An agent and what it names

    def _agent(self, agent: _Instance, shared: list[str]) -> Iterator[list[str]]:
        server = self._named(agent, "resources_server")
        environment = self._environment(agent, server)
        if environment is None:
            return
        name, roles = environment.name, dict[str, _Instance]()
        options: list[str] = []
        if server is not None:
            settings, options, roles = self._server(server, environment)
            if settings:
                path = self._folder / f"{_NO_NAME.sub('_', server.name)}.toml"
                self._files[path] = _served_as(environment.name, settings)
                name = str(path)
        policy = self._named(agent, "model_server")
        for role, model in [*roles.items()]:
            if policy is not None and model.name == policy.name:
                options += ["--role", f"{role}={POLICY}"]
                del roles[role]
        options += self._agent_options(agent, environment.definition)
        options += self._system({POLICY: policy, **roles} if policy else roles)
        if policy is not None and policy.settings.get("return_token_id_information"):
            options.append("--return-token-ids")
        yield from self._runs(agent, environment, name, [*options, *shared])

    def _named(self, instance: _Instance, key: str) -> _Instance | None:
        """The server that a setting refers to."""
        said = instance.settings.get(key)
        name = cast("Document", said).get("name") if isinstance(said, dict) else None
        if name is None:
            return None
        one = self._instances.get(str(name))
        if one is None:
            self._note(f"{instance.path}.{key}", f"no file has the server '{name}'; give its file, too")
        return one

    def _environment(self, agent: _Instance, server: _Instance | None) -> LoadedEnvironment | None:
        names = [agent.name, *([server.name, server.program] if server else []), agent.program]
        problem = ""
        for name in names:
            try:
                return catalogue.known_environment(catalogue.resolve_agent_ref(name))
            except UsageError as error:
                # Of the names, the server's program says best what is missing.
                problem = error.message if server is None or name == server.program else problem
        self._note(agent.path, f"left out: {problem or f'no environment here is {names[0]}'}")
        return None

    def _server(
        self, server: _Instance, environment: LoadedEnvironment
    ) -> tuple[Document, list[str], dict[str, _Instance]]:
        settings: Document = {}
        options: list[str] = []
        roles: dict[str, _Instance] = {}
        known = {role.name for role in environment.definition.declared_roles}
        for key, value in server.settings.items():
            where = f"{server.path}.{key}"
            role = key.removesuffix("_model_server").removesuffix("_responses_create_params")
            if key in _WIRING or value is None:
                continue
            if key.endswith(_SECRET):
                self._note(where, "not copied: keys come from environment variables only")
            elif role != key and role not in known:
                self._note(where, f"{environment.name} has no role '{role}'")
            elif key.endswith("_model_server"):
                if model := self._named(server, key):
                    roles[role] = model
            elif role != key and isinstance(value, dict):
                options += self._role_sampling(where, role, cast("Document", value))
            elif not given(value):
                self._note(where, f"no file says what {value} is: --set NAME=VALUE")
            elif key not in environment.row_fields:
                self._note(where, f"{environment.name} has no such setting")
            elif problem := _unfit(environment, key, value):
                self._note(where, problem)
            else:
                settings[key] = value
        return settings, options, roles

    def _role_sampling(self, where: str, role: str, said: Document) -> Iterator[str]:
        for name, value in said.items():
            if name == "input" and not value:
                continue
            if _plain(value):
                yield from ("--role-sampling", f"{role}.{name}={value}")
            else:
                self._note(f"{where}.{name}", "what a role is shown is the environment's")

    def _agent_options(self, agent: _Instance, environment: Environment) -> Iterator[str]:
        if agent.program not in _OWN_LOOPS and not environment.agent_of(agent.name).name.startswith(
            agent.program.removesuffix("_agent")
        ):
            chosen = environment.agent_of(agent.name).name
            self._note(agent.path, f"'{chosen}' runs the rollouts; another agent here: --agent NAME")
        for key, value in agent.settings.items():
            if key in _WIRING | {"resources_server", "model_server", "datasets"} or value is None:
                continue
            if key == "max_steps" and _counts(value):
                yield from ("--max-turns", str(value))
            elif key == "max_steps":
                self._note(
                    f"{agent.path}.{key}", f"--max-turns wants a whole number of at least 1, not {value}"
                )
            elif key in _AGENT_OPTIONS:
                yield from ("--agent-set", f"{_AGENT_OPTIONS[key]}={_json(value)}")
            else:
                self._note(f"{agent.path}.{key}", "no agent here has such an option")

    # Models

    def _system(self, models: Mapping[str, _Instance]) -> list[str]:
        """The option that names the file of these models, which is written; none without a model."""
        pools = [text for role, model in models.items() if (text := self._pool(role, model))]
        if not pools:
            return []
        text = "\n".join(pools)
        for number in range(1, len(self._files) + 2):
            path = self._folder / ("models.toml" if number == 1 else f"models_{number}.toml")
            if self._files.setdefault(path, text) == text:
                return ["--config", str(path)]
        raise AssertionError("one of the numbers is free")

    def _pool(self, role: str, model: _Instance) -> str:
        provider, said = _PROVIDERS.get(model.program), model.settings
        name = next((said[key] for key in _MODEL_NAMES if said.get(key)), None)
        if provider is None:
            self._note(model.path, f"left out: name the model of '{role}' with --model or --role")
            return ""
        if not given(name):
            self._note(model.path, f"left out: no file says the model's name ({name}): --set NAME=VALUE")
            return ""
        table: Document = {"provider": provider, "name": str(name)}
        self._address(model, table)
        body = cast("Document", table.setdefault("extra_body", {}))
        for key, value in said.items():
            if key in (*_WIRING, *_MODEL_NAMES, *_MODEL_URLS, *_MODEL_KEYS) or value is None:
                continue
            if key in _MODEL_FIELDS and key != "extra_body":
                table[_MODEL_FIELDS[key]] = value
            elif key == "extra_body" and isinstance(value, dict):
                body.update(cast("Document", value))
            elif key == "chat_template_kwargs":
                body[key] = value
            elif key == "sampling_overrides" and provider == "vllm":
                table["options"] = {"sampling": value}
            elif key == "is_responses_native":
                table["api"] = "responses" if value else "auto"
            elif key != "return_token_id_information":
                self._note(f"{model.path}.{key}", "no such setting of a model here")
        return _toml_pool(role, {key: value for key, value in table.items() if value != {}})

    def _address(self, model: _Instance, table: Document) -> None:
        said = model.settings
        urls = next((said[key] for key in _MODEL_URLS if said.get(key)), None)
        said_urls = listed(urls)
        every = [url for url in said_urls if isinstance(url, str)]
        for url in said_urls:
            if not isinstance(url, str):
                self._note(model.path, f"an address is a text, and not {url}")
        table["urls"] = [url for url in every if given(url)]
        if len(table["urls"]) < len(every):
            self._note(model.path, f"no file says where it is served ({every[0]}): --set NAME=URL")
        if not table["urls"]:
            del table["urls"]
        raw = self._raw[model.name][model.kind][model.program]
        for key in _MODEL_KEYS:
            if said.get(key):
                variable = self._references.variable(raw[key]) or f"{model.name.upper()}_API_KEY"
                table["api_key_variable"] = variable
                self._note(f"{model.path}.{key}", f"not copied: set {variable} in the environment")

    # Datasets

    def _runs(
        self, agent: _Instance, environment: LoadedEnvironment, name: str, options: list[str]
    ) -> Iterator[list[str]]:
        start = ["gym-runtime", "run", name]
        named = listed(agent.settings.get("datasets"))
        datasets = [cast("Document", one) for one in named if isinstance(one, dict)]
        others = [one for one in datasets if one.get("type") != "example"]
        if not others:
            yield [*start, *options]
        for number, dataset in enumerate(others):
            where = f"{agent.path}.datasets.{dataset.get('name', number)}"
            split, repeats = str(dataset.get("type", "train")), dataset.get("num_repeats", 1)
            own = [*options]
            if repeats not in (None, 1) and "--repeats" not in own:
                if _counts(repeats):
                    own += ["--repeats", str(repeats)]
                else:
                    self._note(where, f"num_repeats is no whole number of at least 1: {repeats}")
            if prompt := dataset.get("prompt_config"):
                own += ["--prompt", str(found(str(prompt), self._near) or prompt)]
            place = found(str(dataset.get("jsonl_fpath")), self._near)
            source = _source(environment, split, dataset) if place is None else None
            if place is None and source is not None:
                folder = DATA / environment.name
                yield ["gym-runtime", "prepare", source, "--split", split, "-o", str(folder)]
                place = folder / f"{split}.jsonl"
            elif place is None:
                place = Path(str(dataset.get("jsonl_fpath")))
                repo = _repository(dataset)
                self._note(where, f"{place} is not there; get it{f' from {repo} on the hub' if repo else ''}")
            yield [*start, "--input", str(place), *own]


def _counts(value: Any) -> bool:
    """Whether it is a whole number of at least 1, also as a text."""
    return not isinstance(value, bool) and str(value).isascii() and str(value).isdecimal() and int(value) >= 1


def _repository(dataset: Document) -> str:
    source = dataset.get("source") or dataset.get("huggingface_identifier")
    said = cast("Document", source) if isinstance(source, dict) else {}
    return str(said.get("repo_id") or "")


def _source(environment: LoadedEnvironment, split: str, dataset: Document) -> str | None:
    """The environment's own source of a dataset, as 'gym-runtime prepare' names it; None if it has none."""
    repo = _repository(dataset)
    for one in environment.definition.datasets:
        if one.split == split and (one.repo_id == repo or (not repo and not one.name)):
            return f"{environment.name}:{one.name}" if one.name else environment.name
    return None


def _unfit(environment: LoadedEnvironment, key: str, value: Any) -> str:
    try:
        with_settings(environment, {key: value})
        return "" if "null" not in _json(value) else "TOML has no null; set it with --set"
    except (UsageError, TypeError) as error:
        return str(error)


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and given(value)


def _served_as(environment: str, settings: Document) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
    return "\n".join([f"environment = {_toml(environment)}", "", "[settings]", *lines, ""])


def _toml_pool(role: str, table: Document) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in table.items()]
    return "\n".join(["[[pools]]", 'kind = "model"', f"names = [{_toml(role)}]", "[pools.model]", *lines, ""])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _toml(value: Any) -> str:
    """A value on one line; a null in a table is left out."""
    if isinstance(value, dict):
        items = cast("Document", value).items()
        pairs = (f"{_toml(str(key))} = {_toml(one)}" for key, one in items if one is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in cast('list[Any]', value))}]"
    # JSON's strings, numbers and truth values are TOML's, but for one character that TOML has escaped.
    return _json(value).replace("\x7f", "\\u007f")
