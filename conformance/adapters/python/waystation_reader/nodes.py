"""The form of cursors (18.1 to 18.5): a tree of nodes, and what can be wrong with its numbers by themselves."""

from . import forms, values
from .forms import anything, array, bad, elements, hexadecimal, integer, members, name, object_of, one_of, tensor_or, within
from .registry import LIMITS

_COUNT = integer()


def root(value, topology):
    """Checks a cursor."""
    _node(value, 1, topology)


def children(node):
    """[(JSON pointer, node)] of those that a node stands over."""
    if node["kind"] == "mixture":
        return [(f"/children/{number}", child) for number, child in enumerate(node["children"])]
    return [(f"/{member}", node[member]) for member in ("anchor", "child") if member in node]


def walk(node, pointer=""):
    """(JSON pointer, node) of a node and all below it."""
    yield pointer, node
    for step, child in children(node):
        yield from walk(child, pointer + step)


def is_computed(cursor):
    """Whether chapter 18 defines the cursor's items."""
    def by_itself(node):
        if node["kind"] == "mixture":
            return node["selection"]["algorithm"] == "deficit"
        return node["kind"] not in ("pack", "opaque") and "buffer" not in node and is_computed_order(node["order"])
    return all(by_itself(node) for _, node in walk(cursor))


def is_computed_order(order):
    return order["algorithm"] in _ORDERS


def epoch_items(node):
    """E of a permuted-index."""
    n, rule, unit = node["order"]["n"], node["epoch_end"]["rule"], node["epoch_end"].get("unit")
    return {"drop-last": lambda: n - n % unit, "pad": lambda: n + -n % unit}.get(rule, lambda: n)()


# --- nodes


def _node(value, depth, topology):
    """Checks a node; a root has the topology, and nodes below it have None."""
    if not isinstance(value, dict):
        raise bad("expected an object")
    if depth > LIMITS["cursor-depth"]:
        raise bad("deeper than cursor-depth", "limit.value", "limit")
    if "kind" not in value:
        raise bad("member 'kind' is missing", "json.unknown-member")
    within("/kind", one_of(*_NODES), value["kind"])
    table, about_several = _NODES[value["kind"]]

    def child(below):
        _node(below, depth + 1, None)

    table = table(value, child)
    if topology is not None:
        table = table | _root_table(value, topology)
    members(value, table)
    about_several(value)
    if topology is not None:
        if value["kind"] == "permuted-index" and value["consumed"] < value["position"]:
            raise bad("less consumed than the position", "cursor.position", "bad-position").at(prefix="/consumed")
        if "next" not in value and is_computed(value):
            raise bad("a computed cursor without next", "cursor.canary-there")
        if value["kind"] != "sharded-lanes" and value.get("partition", {}).get("rule") == "by-lane":
            raise bad("by-lane stands with sharded-lanes", "cursor.partition").at(prefix="/partition/rule")


def _root_table(value, topology):
    def axis(element):
        name(element)
        if element not in [axis for axis, _ in topology]:
            raise bad(f"axis {element!r} is not of the topology", "cursor.partition")

    return {
        "augment?": one_of("none", "per-record", "worker-stream"),
        **({} if value["kind"] == "opaque" else {"consumed": _COUNT}),
        "next?": _next,
        "partition?": object_of({
            "axes": forms.unique(axis, str, "cursor.partition"),
            "batch": integer(1, rule="cursor.partition"),
            "rule": one_of("round-robin", "contiguous", "by-lane"),
        }),
    }


def _next(value):
    members(value, {"count": integer(0, "canary-items"), "first": elements(_item), "sha256": hexadecimal(64)})
    if len(value["first"]) != min(4, value["count"]):
        raise bad(f"expected {min(4, value['count'])} items", "cursor.canary-there").at(prefix="/first")


def _item(value):
    if not isinstance(value, list):
        return _COUNT(value)
    elements(_COUNT)(value)
    if len(value) < 2:
        raise bad("an item of one integer is bare", "cursor.form")


def _size(limit="max-integer"):
    return integer(1, limit, "cursor.form")


# permuted-index


def _permuted(_value, _child):
    return {"epoch": _COUNT, "epoch_end": _epoch_end, "kind": anything, "order": _order, "position": _COUNT, "source": _source}


def _epoch_end(value):
    has_unit = isinstance(value, dict) and value.get("rule") in ("drop-last", "pad")
    members(value, {"rule": one_of("drop-last", "pad", "wrap", "stop")} | ({"unit": _size()} if has_unit else {}))


_SOURCE = {"name?": name, "records": _size(), "sha256": hexadecimal(64)}
_source = object_of(_SOURCE)


def _permuted_several(value):
    items = epoch_items(value)
    if not 1 <= items or value["position"] > items:
        raise bad(f"position {value['position']} of {items}", "cursor.position", "bad-position").at(prefix="/position")
    within("/order", _domain, value["order"], value["source"]["records"])


# sharded-lanes


def _lanes(_value, _child):
    return {
        "epoch": _COUNT,
        "epoch_end": object_of({"rule": one_of("wrap", "stop")}),
        "kind": anything,
        "lanes": elements(array("[place, record]", _COUNT, _COUNT), "inline-ordinals"),
        "next_lane": _COUNT,
        "order": _order,
        "source": object_of(_SOURCE | {"shards": tensor_or(elements(_COUNT, "inline-ordinals"))}),
    }


def _lanes_several(value):
    lanes, shards, source = value["lanes"], value["order"]["n"], value["source"]
    if value["next_lane"] >= len(lanes):
        raise bad(f"lane {value['next_lane']} of {len(lanes)}", "cursor.lanes", "bad-position").at(prefix="/next_lane")
    for lane, (place, record) in enumerate(lanes):
        if place < lane or (place - lane) % len(lanes) or place >= shards + len(lanes) or place >= shards and record:
            raise bad(f"lane {lane} stands at {place}, {record}", "cursor.lanes", "bad-position").at(prefix=f"/lanes/{lane}")
    if isinstance(source["shards"], list) and (len(source["shards"]) != shards or sum(source["shards"]) != source["records"]):
        raise bad("not n shards that sum to records", "cursor.lanes", "bad-position").at(prefix="/source/shards")
    within("/order", _domain, value["order"], shards)


# opaque


def _opaque(_value, _child):
    return {"fingerprint": _fingerprint, "kind": anything, "media_type": name, "state": values.tree}


def _fingerprint(value):
    values.tree(value)
    if not isinstance(value, dict) or "map" not in value or any(type(key) is not str for key, _ in value["map"]):
        raise bad("expected a map with string keys", "cursor.form")


# mixture


def _mixture(_value, child):
    def some(value):
        elements(child)(value)
        if not 1 <= len(value) <= 1024:
            raise bad(f"{len(value)} children", "cursor.form")
    return {"children": some, "kind": anything, "selection": _selection}


def _weight(value):
    integer(1, rule="cursor.form")(value)
    if value > 2**32 - 1:
        raise bad("more than 2^32 - 1", "cursor.form")


def _selection(value):
    deficit = {"end": one_of("first", "all"), "taken": elements(_COUNT), "weights": elements(_weight)}
    _with_algorithm(value, {"deficit": deficit}, {})


def _mixture_several(value):
    for member in ("taken", "weights"):
        listed = value["selection"].get(member, ())
        if value["selection"]["algorithm"] == "deficit" and len(listed) != len(value["children"]):
            raise bad("not one a child", "cursor.form").at(prefix=f"/selection/{member}")


# window-shuffle


def _window(value, child):
    if "buffer" in value:
        return {"buffer": elements(_item), "child": child, "kind": anything, "order": _window_order}
    return {"anchor": child, "index": _COUNT, "kind": anything, "order": _window_order, "replay": _COUNT, "reverse": forms.boolean,
            "window": _size()}


def _window_several(value):
    if "window" in value:
        if value["replay"] > value["window"]:
            raise bad("more than the window", "cursor.replay", "bad-position").at(prefix="/replay")
        within("/order", _domain, value["order"] | {"n": value["window"]}, value["window"])


# pack


def _piece(value):
    array("[item, offset, count]", _item, _COUNT, _COUNT)(value)
    if value[2] < 1:
        raise bad("a piece without tokens", "cursor.leftover", "bad-position").at(prefix="/2")


def _pack(value, child):
    return {
        "algorithm": name,
        "child": child,
        "kind": anything,
        "leftover": forms.nullable(_piece) if value.get("algorithm") == "concat-then-split" else elements(_piece),
        "length": _size(),
        "tail": one_of("drop", "keep"),
        "tokenizer?": hexadecimal(64),
    }


# --- orders


def _with_algorithm(value, tables, others):
    """An object with the members that its algorithm has; one of an algorithm without a table has `others`, and any more."""
    if not isinstance(value, dict):
        raise bad("expected an object")
    algorithm = value.get("algorithm")
    table = tables.get(algorithm) if isinstance(algorithm, str) else {}
    if table is None:
        table = dict.fromkeys((member for member in value if member != "n"), anything) | others
    members(value, table | {"algorithm": name})


def _seed(bits):
    def checked(value):
        values.integer(value)
        if not 0 <= values.whole(value) < 1 << bits:
            raise bad(f"expected 0 to 2^{bits} - 1", "order.form")
    return checked


def _rounds(value):
    _COUNT(value)
    if value % 2 or not 4 <= value <= 1024:
        raise bad("expected an even number from 4 to 1024", "order.form")


_SEED_RULE = one_of("seed", "seed+epoch")
_ORDERS = {
    "identity": {},
    "explicit": {"ordinals": tensor_or(elements(_COUNT, "inline-ordinals"))},
    "torch.randperm-cpu": {"seed": _seed(64), "seed_rule": _SEED_RULE},
    "grain.index_shuffle": {"rounds": _rounds, "seed": _seed(32), "seed_rule": _SEED_RULE},
}


def _order(value):
    _with_algorithm(value, {algorithm: {"n": _size()} | table for algorithm, table in _ORDERS.items()}, {"n": _size()})


def _window_order(value):
    if isinstance(value, dict) and value.get("algorithm") == "explicit":
        raise bad("explicit does not stand in a window-shuffle", "order.form").at(prefix="/algorithm")
    _with_algorithm(value, _ORDERS, {})


def _domain(order, bound):
    """The rule order.domain, with the number of things that ordinals number."""
    most = min(bound, 1 << 32) if order["algorithm"] == "grain.index_shuffle" else bound
    if order["algorithm"] != "explicit":
        if order["n"] > most:
            raise bad(f"n is {order['n']} of {bound}", "order.domain", "bad-position").at(prefix="/n")
    elif isinstance(order["ordinals"], list):
        in_domain(order["ordinals"], order["n"], bound)


def in_domain(ordinals, n, bound):
    """Checks the ordinals of an explicit order."""
    if len(ordinals) != n or max(ordinals) >= bound:
        raise bad(f"not {n} ordinals below {bound}", "order.domain", "bad-position").at(prefix="/ordinals")


# kind -> (members of a value, what to check after them)
_NODES = {
    "permuted-index": (_permuted, _permuted_several),
    "sharded-lanes": (_lanes, _lanes_several),
    "opaque": (_opaque, anything),
    "mixture": (_mixture, _mixture_several),
    "window-shuffle": (_window, _window_several),
    "pack": (_pack, anything),
}
