"""The cache of results: keys, bound, eviction."""

from hypothesis import given
from hypothesis import strategies as st

from apps.serving.cache import ENTRY_BYTES, ResultCache


def test_another_model_is_another_question() -> None:
    cache = ResultCache(10_000)
    cache.put(cache.key("digest 1", "classify", "", "글"), b"1")
    assert cache.get(cache.key("digest 2", "classify", "", "글")) is None
    assert cache.get(cache.key("digest 1", "classify", "", "글")) == b"1"
    assert cache.key("a", "bc") != cache.key("ab", "c")
    assert ResultCache(10).key("a") != ResultCache(10).key("a")


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 700), st.booleans()), max_size=60))
def test_the_cache_keeps_what_was_used_last_within_its_bound(steps: list[tuple[int, int, bool]]) -> None:
    cache, bound = ResultCache(2000), 2000
    order: dict[int, bytes] = {}
    for name, size, is_question in steps:
        key = cache.key(str(name))
        if is_question:
            assert cache.get(key) == order.get(name)
            if name in order:
                order[name] = order.pop(name)
            continue
        value = bytes(size)
        cache.put(key, value)
        order.pop(name, None)
        order[name] = value
        while sum(len(v) + ENTRY_BYTES for v in order.values()) > bound:
            order.pop(next(iter(order)))
        assert len(cache) == len(order)
        assert cache.num_bytes == sum(len(v) + ENTRY_BYTES for v in order.values()) <= bound
