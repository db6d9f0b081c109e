"""An environment for Harbor's own runner: podman without Compose, for comparing what it says with ours."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities


class Podman(BaseEnvironment):
    """A container; with the image that a task names, or that its Dockerfile describes."""

    @staticmethod
    def type():
        return "podman"

    @property
    def capabilities(self):
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def preflight(cls, kwargs=None):
        return None

    def _validate_definition(self):
        return None

    async def _podman(self, *arguments, stdin=None):
        def run():
            return subprocess.run(["podman", *arguments], input=stdin, capture_output=True, check=False)

        return await asyncio.to_thread(run)

    async def _must(self, *arguments, stdin=None):
        done = await self._podman(*arguments, stdin=stdin)
        if done.returncode:
            raise RuntimeError(f"podman {arguments[0]}: {done.stderr.decode(errors='replace')[-500:]}")
        return done

    async def start(self, force_build):
        image = self.task_env_config.docker_image
        self._name = f"harbor-{os.getpid()}-{self.session_id}".lower().replace("_", "-")[:120]
        self._built = ""
        if not image:
            image = self._built = f"localhost/{self._name}"
            told = ("build", "-q", "--network=none", "-t", image, str(self.environment_dir))
            # While another process removes images, podman 4.3 may miss a layer of its own.
            if (await self._podman(*told)).returncode:
                await self._must(*told)
        given = [f"--env={name}={value}" for name, value in self._startup_env().items()]
        command = ["sh", "-c", "sleep infinity"]
        told = ["--network=none", f"--name={self._name}", *given]
        await self._must("run", "-d", *told, "--entrypoint=", image, *command)
        if where := self.task_env_config.workdir:
            await self._must("exec", "--user=0", self._name, "mkdir", "-p", where)
        await self.ensure_dirs(["/logs/agent", "/logs/verifier", "/logs/artifacts"])
        await self._upload_environment_dir_after_start()

    async def stop(self, delete):
        await self._podman("rm", "-f", "-t", "0", self._name)
        if self._built:
            await self._podman("rmi", "-f", self._built)

    async def upload_file(self, source_path, target_path):
        await self.exec(f"mkdir -p {shlex.quote(str(Path(str(target_path)).parent))}", user="root")
        await self._must("cp", str(source_path), f"{self._name}:{target_path}")

    async def upload_dir(self, source_dir, target_dir):
        packed = await asyncio.to_thread(_packed, Path(source_dir))
        await self.exec(f"mkdir -p {shlex.quote(str(target_dir))}", user="root")
        told = ["exec", "-i", "--user=0", self._name, "tar", "-xf", "-", "-C", str(target_dir)]
        await self._must(*told, stdin=packed)

    async def download_file(self, source_path, target_path):
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self._must("cp", f"{self._name}:{source_path}", str(target_path))

    async def download_dir(self, source_dir, target_dir):
        told = ["exec", "--user=0", self._name, "tar", "-cf", "-", "-C", str(source_dir), "."]
        done = await self._must(*told)
        await asyncio.to_thread(_unpack, done.stdout, Path(target_dir))

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        told = ["exec"]
        user = self._resolve_user(user)
        # The image of the tests has no names of users.
        told += [f"--user={0 if user == 'root' else user}"] if user is not None else []
        where = cwd or self.task_env_config.workdir
        told += [f"--workdir={where}"] if where else []
        told += [f"--env={name}={value}" for name, value in (self._merge_env(env) or {}).items()]
        told += [self._name, *(["timeout", str(timeout_sec)] if timeout_sec else []), "sh", "-c", command]
        done = await self._podman(*told)
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            return_code=done.returncode,
        )


def _packed(folder: Path) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False)
    return buffer.getvalue()


def _unpack(packed: bytes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
