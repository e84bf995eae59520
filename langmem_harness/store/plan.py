"""From operations to a checked plan: everything a batch needs, worked out before any lock or transaction. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp, TTLConfig

from langmem_harness.errors import ConfigurationError, ItemValueError
from langmem_harness.store.filters import Predicate, compile_filter, plan_sql
from langmem_harness.store.keywords import Tokenizer
from langmem_harness.store.namespaces import Namespace, check_conditions, check_namespace
from langmem_harness.store.ranking import LAMBDA_MULT
from langmem_harness.store.records import Mode
from langmem_harness.store.texts import FieldPaths, Indexing, embeddable, pack_item_terms
from langmem_harness.store.values import decode_value, encode_key, encode_value
from langmem_harness.store.writer import PlannedPut

_MODES = ("semantic", "keyword", "hybrid")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedGet:
    """A checked get."""

    namespace: Namespace
    key: bytes
    refresh_ttl: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedListing:
    """A checked listing of namespaces."""

    conditions: tuple[MatchCondition, ...]
    max_depth: int | None
    limit: int
    offset: int
    prefix: Namespace


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSearch:
    """A checked search.

    Attributes:
        query: What is asked; None for a blank one.
        text: The query as the embedder gets it; None when the semantic leg is not wanted.
        mode: Wanted legs.
    """

    prefix: Namespace
    query: str | None
    text: str | None
    mode: Mode
    limit: int
    offset: int
    predicate: Predicate | None
    sql: tuple[str, list[Any]]
    refresh_ttl: bool
    threshold: float | None = None
    lambda_mult: float | None = None
    fetch_k: int | None = None
    field_weights: Mapping[str, float] | None = None


Planned = PlannedPut | PlannedGet | PlannedListing | PlannedSearch


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """Checked operations in their order, and the texts that need vectors."""

    operations: tuple[Planned, ...]
    documents: tuple[str, ...]
    queries: tuple[str, ...]
    writes: bool


def plan_batch(ops: Iterable[Op], *, paths: FieldPaths, tokenizer: Tokenizer, mode: Mode) -> BatchPlan:
    """Check every operation; nothing is done if one of them is wrong.

    Raises:
        NamespaceError: A namespace that cannot be.
        ItemValueError: A key, value, index or time to live that cannot be stored.
        FilterError: An unusable filter.
        ConfigurationError: Something that is no operation, or a page that cannot be.
    """
    planned: list[Planned] = []
    documents: dict[str, None] = {}
    queries: dict[str, None] = {}
    writes = False
    for op in ops:
        match op:
            case PutOp():
                put = plan_put(op, paths, tokenizer)
                for text in put.texts:
                    if text is not None:
                        documents[text] = None
                planned.append(put)
                writes = True
            case GetOp():
                namespace = check_namespace(op.namespace, prefix=True)
                planned.append(
                    PlannedGet(namespace=namespace, key=encode_key(op.key), refresh_ttl=bool(op.refresh_ttl))
                )
            case SearchOp():
                search = plan_search(
                    op.namespace_prefix,
                    query=op.query,
                    filter=op.filter,
                    limit=op.limit,
                    offset=op.offset,
                    mode=mode,
                    refresh_ttl=bool(op.refresh_ttl),
                )
                if search.text is not None:
                    queries[search.text] = None
                planned.append(search)
            case ListNamespacesOp():
                planned.append(plan_listing(op))
            case _:
                raise ConfigurationError(f"not an operation of a store: {type(op).__name__}")
    return BatchPlan(operations=tuple(planned), documents=tuple(documents), queries=tuple(queries), writes=writes)


def plan_put(op: PutOp, paths: FieldPaths, tokenizer: Tokenizer) -> PlannedPut:
    """Check a put or delete and take out what is indexed."""
    if op.value is None:  # also where put() would refuse: what is there must be removable
        return PlannedPut(namespace=check_namespace(op.namespace, prefix=True), key=encode_key(op.key), value=None)
    namespace, key = check_namespace(op.namespace), encode_key(op.key)
    value, stored = encode_value(op.value)
    indexing = check_indexing(op.index)
    ttl = check_ttl(op.ttl)
    if indexing is False:
        return PlannedPut(namespace=namespace, key=key, value=value, indexing=False, ttl_minutes=ttl)
    texts = paths.texts(stored, indexing)
    return PlannedPut(
        namespace=namespace,
        key=key,
        value=value,
        indexing=indexing,
        ttl_minutes=ttl,
        terms=pack_item_terms(texts, tokenizer),
        texts=tuple([embeddable(entry.text) for entry in texts]),
    )


def plan_search(
    prefix: Namespace,
    *,
    query: str | None,
    filter: Mapping[str, Any] | None,
    limit: int,
    offset: int,
    mode: Mode,
    refresh_ttl: bool,
    threshold: float | None = None,
    mmr_lambda: float | None = None,
    fetch_k: int | None = None,
    field_weights: Mapping[str, float] | None = None,
) -> PlannedSearch:
    """Check a search."""
    if query is not None and not isinstance(query, str):
        raise ConfigurationError(f"query must be a text or None, not {type(query).__name__}")
    check_mode(mode)
    check_page(limit, offset)
    if threshold is not None and not (_is_number(threshold) and -1 <= threshold <= 1):
        raise ConfigurationError(f"threshold is a cosine from -1 to 1, not {threshold!r}")
    if mmr_lambda is not None and not (_is_number(mmr_lambda) and 0 <= mmr_lambda <= 1):
        raise ConfigurationError(f"mmr_lambda must be from 0 to 1, not {mmr_lambda!r}")
    if fetch_k is not None and not (_is_whole(fetch_k) and fetch_k > 0):
        raise ConfigurationError(f"fetch_k must be a whole number above 0, not {fetch_k!r}")
    for path, weight in (field_weights or {}).items():
        if not isinstance(path, str) or not _is_number(weight) or not 0 <= weight < math.inf:
            raise ConfigurationError(
                f"field_weights maps field paths to numbers of 0 or more, not {path!r}: {weight!r}"
            )
    text = embeddable(query) if query is not None else None
    return PlannedSearch(
        prefix=check_namespace(prefix, prefix=True),
        query=query if text is not None else None,
        text=text if mode != "keyword" else None,
        mode=mode,
        limit=limit,
        offset=offset,
        predicate=compile_filter(filter),
        sql=plan_sql(filter),
        refresh_ttl=refresh_ttl,
        threshold=threshold,
        # a pool without a weight asks for variety too
        lambda_mult=LAMBDA_MULT if mmr_lambda is None and fetch_k is not None else mmr_lambda,
        fetch_k=fetch_k,
        field_weights=dict(field_weights) if field_weights else None,
    )


class RecallOptions(TypedDict, total=False):
    """What `FaissStore.recall` can be asked.

    Attributes:
        query: What to search for; None or blank gives the items written last.
        top_k: How many, 0 or more; 10 when left out.
        offset: How many of the best to leave out; 0.
        mode: Legs to use; the store's when left out.
        threshold: Smallest cosine, inclusive, -1 to 1. Nothing above it: nothing is returned.
        mmr_lambda: Asks for variety (MMR): 1.0 is relevance only, 0.0 variety only.
        fetch_k: Pool MMR chooses from, on every page the same; three times `top_k`. What is behind it follows by score.
        filter: As in ``search``.
        field_weights: Weight by field path; when left out, an item counts by its best field.
        refresh_ttl: Whether what is found starts its time to live again; as the store's ``ttl`` says.
    """

    query: str | None
    top_k: int
    offset: int
    mode: Mode | None
    threshold: float | None
    mmr_lambda: float | None
    fetch_k: int | None
    filter: Mapping[str, Any] | None
    field_weights: Mapping[str, float] | None
    refresh_ttl: bool | None


def plan_recall(prefix: Namespace, options: RecallOptions, *, mode: Mode, ttl: TTLConfig | None) -> PlannedSearch:
    """Check the arguments of `FaissStore.recall`.

    Raises:
        ConfigurationError: An unknown option, or one that cannot work.
    """
    unknown = options.keys() - RecallOptions.__annotations__.keys()
    if unknown:
        raise ConfigurationError(f"unknown options: {', '.join(sorted(unknown))}")
    refresh_ttl = options.get("refresh_ttl")
    if refresh_ttl is None:
        refresh_ttl = (ttl or {}).get("refresh_on_read", True)
    return plan_search(
        prefix,
        query=options.get("query"),
        filter=options.get("filter"),
        limit=options.get("top_k", 10),
        offset=options.get("offset", 0),
        mode=options.get("mode") or mode,
        refresh_ttl=refresh_ttl,
        threshold=options.get("threshold"),
        mmr_lambda=options.get("mmr_lambda"),
        fetch_k=options.get("fetch_k"),
        field_weights=options.get("field_weights"),
    )


def plan_listing(op: ListNamespacesOp) -> PlannedListing:
    """Check a listing; a prefix without wildcards narrows what is read."""
    conditions = check_conditions(op.match_conditions)
    check_page(op.limit, op.offset)
    if op.max_depth is not None and not (_is_whole(op.max_depth) and op.max_depth > 0):
        raise ConfigurationError(f"max_depth must be a whole number above 0 or None, not {op.max_depth!r}")
    prefixes = [tuple(condition.path) for condition in conditions if condition.match_type == "prefix"]
    plain = [path[: path.index("*")] if "*" in path else path for path in prefixes]
    return PlannedListing(
        conditions=conditions,
        max_depth=op.max_depth,
        limit=op.limit,
        offset=op.offset,
        prefix=max(plain, key=len, default=()),
    )


def check_mode(mode: str) -> None:
    """Raises `ConfigurationError` for an unknown mode."""
    if mode not in _MODES:
        raise ConfigurationError(f"retrieval must be one of {', '.join(_MODES)}, not {mode!r}")


def check_page(limit: int, offset: int) -> None:
    """Raises `ConfigurationError` unless both are whole numbers of 0 or more."""
    if not _is_whole(limit) or limit < 0:
        raise ConfigurationError(f"limit must be a whole number of 0 or more, not {limit!r}")
    if not _is_whole(offset) or offset < 0:
        raise ConfigurationError(f"offset must be a whole number of 0 or more, not {offset!r}")


def check_indexing(index: Any) -> Indexing:
    """The ``index`` argument: None (the store's fields), False (not at all), or a list of paths; ``[]`` is False."""
    if index is None or index is False:
        return index
    if not isinstance(index, list | tuple) or not all(isinstance(path, str) for path in index):
        raise ItemValueError("index must be None, False or a list of field paths")
    return list(index) or False


def check_ttl(ttl: Any) -> float | None:
    """Minutes, 0 or more, or None."""
    if ttl is None:
        return None
    if not _is_number(ttl) or not 0 <= ttl < 1e10:
        raise ItemValueError(f"ttl is a number of minutes, 0 or more, not {ttl!r}")
    return float(ttl)


def plan_stored(
    value: str, indexing: Indexing, paths: FieldPaths, tokenizer: Tokenizer
) -> tuple[bytes, list[str | None]]:
    """Terms and embeddable texts of a stored item, made anew."""
    texts = paths.texts(decode_value(value), indexing)
    return pack_item_terms(texts, tokenizer), [embeddable(entry.text) for entry in texts]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
