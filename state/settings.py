"""How a partition's database is opened: chosen once by measurement, applied on every open.

rocksdict remembers options in the database folder and takes them back unless they are given for
each column family by name; so they always are. No write-ahead log and no memtable are ever used:
the only way in is the ingestion of whole SST files, which is why there is nothing here about
either.
"""

from dataclasses import dataclass

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
)

__all__ = ["StateSettings", "database_options", "ingest_options", "sst_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """What a host lets the databases of its partitions use."""

    block_cache_bytes: int = 64 << 20
    """Per open database. Index and filter blocks count in it, so it bounds memory."""
    fetched_bytes: int = 64 << 20
    """Per attempt: what it keeps of the values it has fetched, beside those it has changed."""
    bloom_bits: int = 10
    max_open_files: int = 256
    background_jobs: int = 2
    sst_bytes: int = 64 << 20
    """The size compaction aims at, and so the unit that snapshots share."""


def database_options(settings: StateSettings) -> Options:
    """Options for opening a database, complete on every open."""
    options = _common(settings)
    options.create_if_missing(True)
    options.set_max_open_files(settings.max_open_files)
    options.set_max_background_jobs(settings.background_jobs)
    options.set_target_file_size_base(settings.sst_bytes)
    options.set_max_bytes_for_level_base(4 * settings.sst_bytes)
    options.set_level_zero_file_num_compaction_trigger(8)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_write_buffer_size(1 << 20)  # nothing is ever written to it
    return options


def sst_options(settings: StateSettings) -> Options:
    """Options for writing a delta: the same blocks and filters as the database's own files."""
    return _common(settings)


def ingest_options() -> IngestExternalFileOptions:
    """Copy, never move or link: the changelog keeps its file whatever the database does."""
    options = IngestExternalFileOptions()
    options.set_move_files(False)
    options.set_allow_global_seqno(True)
    return options


def _common(settings: StateSettings) -> Options:
    blocks = BlockBasedOptions()
    # An LRU cache this small has shards of 1 MiB: the filter of a million keys fits in none of them
    # and is read anew for every few keys, at a quarter of the speed. These shards are large.
    blocks.set_block_cache(Cache.new_hyper_clock_cache(settings.block_cache_bytes, 0))
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_bloom_filter(settings.bloom_bits, False)
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    return options
