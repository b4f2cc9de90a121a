"""Replicas by DNS, addresses of a headless service and SRV records asked of a name server on a socket, and in a file."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.message
import dns.resolver
import dns.rrset
import pytest
from foretype_backend.config.fleet import DiscoveryConfig
from foretype_backend.errors import DirectoryError
from foretype_backend.fleet.members.sources import DnsSource, source_of


class _NameServer(asyncio.DatagramProtocol):
    """Answers SRV with two services on this host."""

    transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        asked = dns.message.from_wire(data)
        answer = dns.message.make_response(asked)
        name = asked.question[0].name
        if str(name).startswith("_http._tcp.vllm."):
            answer.answer = [dns.rrset.from_text(name, 5, "IN", "SRV", "0 1 8101 localhost.", "0 1 8102 localhost.")]
        else:
            answer.set_rcode(3)
        self.transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def name_server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(_NameServer, local_addr=("127.0.0.1", 0))
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], transport.get_extra_info("sockname")[1]
    monkeypatch.setattr(dns.asyncresolver, "default_resolver", resolver)
    try:
        yield
    finally:
        transport.close()


async def test_a_name_gives_each_of_its_addresses_as_a_replica() -> None:
    source = source_of(DiscoveryConfig(source="dns", name="localhost", port=8000))
    answer = await source.ask()
    assert "127.0.0.1:8000" in {one.address for one in answer.replicas}
    assert all(one.name == one.address for one in answer.replicas)
    assert await source.rollout() is None
    await source.close()


async def test_services_give_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    async with name_server(monkeypatch):
        source = DnsSource(DiscoveryConfig(source="dns", name="_http._tcp.vllm.test"))
        answer = await source.ask()
        assert {"127.0.0.1:8101", "127.0.0.1:8102"} <= {one.address for one in answer.replicas}
        with pytest.raises(DirectoryError, match="cannot be resolved"):
            await DnsSource(DiscoveryConfig(source="dns", name="_http._tcp.gone.test")).ask()


async def test_a_resolver_that_is_away_or_knows_nobody_is_no_answer() -> None:
    config = DiscoveryConfig(source="dns", name="vllm.invalid", port=8000, timeout_s=0.2)

    async def never(_: str) -> list[tuple[str, int]]:
        await asyncio.sleep(60)
        return []

    async def nobody(_: str) -> list[tuple[str, int]]:
        return []

    async def twice(_: str) -> list[tuple[str, int]]:
        return [("::1", 8000), ("10.0.0.1", 8000), ("10.0.0.1", 8000)]

    for find, told in ((never, "within"), (nobody, "no addresses")):
        with pytest.raises(DirectoryError, match=told):
            await DnsSource(config, find).ask()
    assert [one.address for one in (await DnsSource(config, twice).ask()).replicas] == ["10.0.0.1:8000", "[::1]:8000"]


async def test_a_file_is_read_each_time_and_one_that_cannot_be_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "replicas.json"
    source = source_of(DiscoveryConfig(source="file", path=str(path)))
    with pytest.raises(DirectoryError, match="cannot be read"):
        await source.ask()
    for names in (["a"], ["a", "b"]):
        entries = [{"targets": [f"10.0.0.{ord(one)}:8000"], "labels": {"replica": one}} for one in names]
        path.write_text(json.dumps(entries))
        assert [one.name for one in (await source.ask()).replicas] == names
    path.write_text("[")
    with pytest.raises(DirectoryError):
        await source.ask()
    assert await source.rollout() is None
    await source.close()
