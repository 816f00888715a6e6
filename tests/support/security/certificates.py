"""What clients of clusters with TLS trust and present, and certificates of an authority that clusters do not know."""

import ssl
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import trustme

from fakebroker import FakeCluster
from fakebroker.server.tls.certificates import ClientCertificate

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
EXPIRED = datetime(2002, 1, 1, tzinfo=UTC)


def client_context(
    ca_file: str, client: ClientCertificate | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Return the settings of a client that trusts an authority; of one version of TLS, if it is given."""
    context = ssl.create_default_context(cafile=ca_file)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def context_of(cluster: FakeCluster, name: str | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """Return the settings of a client of a cluster, which has a certificate if a name is given."""
    client = None if name is None else cluster.tls.client_certificate(name)
    return client_context(cluster.tls.ca_file, client, version)


@cache
def other_authority() -> trustme.CA:
    """Return an authority that clusters do not know, unless their settings name it."""
    return trustme.CA()


def saved(certificate: trustme.LeafCert, folder: Path, name: str = "client") -> ClientCertificate:
    """Save a certificate of another authority and its key to a folder."""
    paths = ClientCertificate(str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem"))
    certificate.cert_chain_pems[0].write_to_path(paths.certificate)
    certificate.private_key_pem.write_to_path(paths.key)
    return paths
