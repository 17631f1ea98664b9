"""TLS for connections to a daemon."""

from __future__ import annotations

import ssl

from .io import Place


def tls_context(place: Place) -> ssl.SSLContext:
    """Trusts only the certificates of the place, or those of the system if it has none."""
    context = ssl.create_default_context(cadata=place.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
