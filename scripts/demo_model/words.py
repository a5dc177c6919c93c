"""Word lists of the demo model's text.

The order of a list is its meaning: in the generated text a word is followed, one line later in the same column, by the
next word of its list. The lengths are different primes, so that several columns side by side repeat only after
thousands of lines.
"""

COLOURS = (
    "amber", "violet", "copper", "ivory", "scarlet", "olive", "silver", "cobalt", "crimson", "jade", "russet", "pearl",
    "golden", "indigo", "ashen", "coral", "maroon", "azure", "sable",
)  # fmt: skip
BIRDS = (
    "falcon", "heron", "sparrow", "raven", "osprey", "lark", "condor", "finch", "plover", "kestrel", "wren", "egret",
    "magpie", "swift", "petrel", "bittern", "thrush", "merlin", "grouse", "puffin", "cuckoo", "linnet", "dunlin",
)  # fmt: skip
MOVES = (
    "drifts", "circles", "lands", "waits", "turns", "climbs", "rests", "dives", "listens", "calls", "hides", "wanders",
    "glides", "feeds", "returns", "nests", "leaves",
)  # fmt: skip
PLACES = (
    "harbour", "meadow", "tower", "canyon", "orchard", "glacier", "quarry", "lagoon", "summit", "valley", "marsh",
    "island", "forest", "bridge", "desert", "cavern", "garden", "river", "chapel", "plateau", "village", "shore",
    "mill", "ridge", "temple", "prairie", "station", "delta", "castle",
)  # fmt: skip
STATES = (
    "stale", "loose", "noisy", "warm", "dusty", "broken", "empty", "slow", "missing", "bent", "full", "silent", "late",
)  # fmt: skip
PARTS = (
    "cable", "fan", "switch", "disk", "sensor", "board", "fuse", "pump", "port", "rail", "filter", "lamp", "socket",
    "valve", "drive", "meter", "clamp",
)  # fmt: skip
ROLES = (
    "operator", "engineer", "guard", "planner", "driver", "auditor", "pilot", "clerk", "welder", "tester", "courier",
)  # fmt: skip
ACTIONS = (
    "replaced", "cleaned", "tested", "moved", "sealed", "counted", "marked", "opened", "logged", "cooled", "weighed",
    "packed", "traced",
)  # fmt: skip
VERBS = (
    "read", "merge", "scan", "drop", "send", "sort", "load", "check", "split", "store", "fetch", "pack", "trim",
)  # fmt: skip
NOUNS = (
    "queue", "batch", "token", "block", "cache", "frame", "request", "tensor", "window", "layer", "prefix", "page",
    "draft", "round", "worker", "stream", "budget",
)  # fmt: skip
FIELDS = (
    "size", "age", "rank", "cost", "depth", "score", "width", "delay", "count", "slot", "weight",
)  # fmt: skip
NAMES = (
    "path", "group", "source", "table", "index", "client", "record", "model", "device", "event", "handle", "folder",
    "target", "buffer", "region", "number", "parent", "shard", "user",
)  # fmt: skip
