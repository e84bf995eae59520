"""What every test gets: both faces of an object, and no network."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


class Face:
    """Calls a method by its plain name, or its async twin (``"a" + name``) in an event loop of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, target: Any, method: str, /, *args: Any, **kwargs: Any) -> Any:
        if self.name == "sync":
            return getattr(target, method)(*args, **kwargs)

        async def call() -> Any:
            return await getattr(target, f"a{method}")(*args, **kwargs)

        return asyncio.run(call())


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Face:
    """Runs the test once per face: ``face(store, "search", ("a",), query="b")``."""
    return Face(request.param)


@pytest.fixture
def anyio_backend() -> str:
    """Tests that are coroutines themselves are marked ``@pytest.mark.anyio`` and run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Any connection beyond loopback fails the test that made it."""
    real_connect = socket.socket.connect

    def guarded_connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address!r}")
        return real_connect(self, address)

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", guarded_connect)
    yield
    patch.undo()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
