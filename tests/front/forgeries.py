"""What a sender may try in order to be somebody else (acceptance 5): stored as its own, or refused."""

from __future__ import annotations

# What a sender says about its origin; {m} marks the sample so that it can be found again.
TEXT_FORGERIES = {
    "plain": 'forged{{m="{m}"}} 1',
    "label": 'forged{{node="node2",m="{m}"}} 1',
    "rack and site": 'forged{{rack="rack2",site="elsewhere",m="{m}"}} 1',
    "label twice": 'forged{{node="node2",node="node2",m="{m}"}} 1',
    "other label twice": 'forged{{a="1",a="2",node="node2",m="{m}"}} 1',
    "guessed identity": 'forged{{__id_0123456789abcdef="node2",m="{m}"}} 1',
    "guessed identity twice": 'forged{{__id_="node2",__id_="node2",__id="node2",m="{m}"}} 1',
    "inner names": 'forged{{__tmp_node="node2",mapnode="node2",map__id_node="node2",m="{m}"}} 1',
    "inner names twice": 'forged{{map__id_0123node="node2",map__id_0123node="node2",m="{m}"}} 1',
    "own name": 'forged{{own___id_0123456789abcdef="node2",own="node2",m="{m}"}} 1',
    "instance and job": 'forged{{instance="node2",job="node",m="{m}"}} 1',
    "name as label": 'forged{{__name__="forged",node="node2",m="{m}"}} 1',
}

BINARY_FORGERIES: dict[str, list[tuple[str, str]]] = {
    "plain": [],
    "label": [("node", "node2")],
    "label first and last": [("node", "node2"), ("z", "1"), ("node", "node2")],
    "three racks": [("rack", "rack2"), ("rack", "rack1"), ("rack", "rack3")],
    "other label twice": [("a", "1"), ("a", "2"), ("node", "node2"), ("a", "3")],
    "guessed identity twice": [("__id_0123456789abcdef", "node2"), ("__id_0123456789abcdef", "node2")],
    "empty value": [("node", ""), ("a", "")],
    "name that no tier takes": [
        ("no de", "node2"),
        ("a.b", "1"),
        ("a-b", "2"),
        ("", "x"),
        ("nod\u0435", "node2"),
    ],
    "line breaks": [("a", "1\nnode2"), ("node\n", "node2")],
    "second name": [("__name__", "forged2")],
    "reserved names": [("__address__", "x"), ("__scheme__", "y"), ("le", "1"), ("le", "2")],
}

FORGED_QUERIES = (
    "extra_label=node=node2",
    "extra_label=node=node2&extra_label=rack=rack2",
    "extra_label=__id_0123456789abcdef=node2",
    "extra_filters[]=x&timestamp=1",
    "extra_label=m=stolen",
)
