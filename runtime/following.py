"""Telling sources how far a job has read them, for the lag tools that people have.

It is only for show: a source that cannot be told is told again with the next epoch, and a job never
begins anywhere but where its own chain says.
"""

import logging

from penstock.checkpoint.manifest import Manifest
from penstock.errors import PenstockError
from penstock.runtime.topology import Topology
from penstock.sources.protocol import Followed

__all__ = ["tell_sources"]

log = logging.getLogger("penstock.run")


def tell_sources(topology: Topology, manifest: Manifest) -> None:
    """Tell every source that can be followed how far it has been read by now."""
    for name, node in topology.sources.items():
        if isinstance(node.source, Followed) and name in manifest.sources:
            try:
                node.source.committed(manifest.sources[name].resume_at)
            except PenstockError as failure:
                log.warning("progress in %s is not shown: %s", name, failure)
