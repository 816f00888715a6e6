"""Workload files that are not as they should be, each with the sentence that it is told. Knows no reading."""

TOP = "duration_s = 100\ntopics = { orders = 1 }\n"
LEAST = TOP + "[[groups]]\n"
EXPECT = '[[expect]]\nmetric = "p99_ms"\ncomparison = "<"\nvalue = 5\n'
SPANS = "expected seconds, 0 or more, or [fewest, most], got"
BATCH_JOIN = (
    'duration_s = 100\ntopics = { orders = 1 }\ncluster.proposals = ["batch-join"]\n'
    '[[groups]]\ngrow = { instances = 4, at_s = 10, how = "static" }\n'
)

WRONG = {
    # the whole
    "topics = { orders = 1 }": "duration_s is missing",
    "duration_s = 3\n[[groups]]": "topics is missing",
    TOP: "groups is missing",
    f"{TOP}groups = []": "groups: expected at least one [[groups]] table",
    f"{TOP}[groups]\ncount = 5": "groups = {'count': 5}: expected a list, got a table",
    f"{TOP}x = ": "Invalid value (at line 3, column 5)",
    f"{TOP}speed = 3\n[[groups]]": "speed = 3: no such key; expected one of duration_s, topics, seed, cluster, groups, "
    "load, event, pacing, expect, promises",
    "duration_s = 0\ntopics = { orders = 1 }\n[[groups]]": "duration_s = 0: expected a number > 0",
    "duration_s = inf\ntopics = { orders = 1 }\n[[groups]]": "duration_s = inf: expected a number that is finite",
    "duration_s = 3\ntopics = {}\n[[groups]]": "topics: expected at least one topic with its number of partitions",
    'duration_s = 3\ntopics = { "or ders" = 1 }\n[[groups]]': "topics: expected names other than "
    "__consumer_offsets, __transaction_state, of 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..', got "
    "'or ders'",
    "duration_s = 3\ntopics = { __consumer_offsets = 1 }\n[[groups]]": "topics: expected names other than ",
    "duration_s = 3\ntopics = { orders = 200_000 }\n[[groups]]": "topics.orders = 200000: expected a whole number <= "
    "100000",
    "duration_s = 1e300\ntopics = { orders = 1 }\n[[groups]]": "duration_s = 1e+300: expected a number <= 1000000",
    "duration_s = 3\ntopics = { orders = 0 }\n[[groups]]": "topics.orders = 0: expected a whole number >= 1",
    f'{TOP}seed = "x"\n[[groups]]': "seed = 'x': expected a whole number, got text",
    # the cluster
    f"{LEAST}[cluster]\nbrokers = 0": "cluster.brokers = 0: expected a whole number >= 1",
    f'{LEAST}[cluster]\nas_version = "2.99"': "cluster.as_version: release '2.99': expected one of ",
    f'{LEAST}[cluster]\nas_version = "2.8"\nproposals = ["batch-join"]': "cluster.proposals: expected none with "
    "as_version 2.8, got batch-join",
    f'{LEAST}[cluster]\nproposals = ["x"]': "cluster.proposals[0] = 'x': expected one of 'batch-join'",
    f"{LEAST}[cluster.config]\n'group.max.sise' = 3": "cluster.config: unknown setting 'group.max.sise'; the nearest "
    "that the fake cluster honours is 'group.max.size'",
    f"{LEAST}[cluster]\nload_ms = -1": "cluster.load_ms = -1: expected a whole number >= 0",
    # populations: names and numbers
    f"{LEAST}cuont = 5": "groups[0].cuont = 5: no such key; expected one of name, pattern, count, ",
    f'{LEAST}count = "many"': "groups[0].count = 'many': expected a whole number, got text",
    f"{LEAST}count = 100_000_001": "groups[0].count = 100000001: expected a whole number <= 100000000",
    f'{LEAST}pattern = ""': "groups[0].pattern = '': expected text of length >= 1",
    f"{LEAST}count = 0": "groups[0].count = 0: expected a whole number >= 1",
    f'{LEAST}name = ""': "groups[0].name = '': expected text of length >= 1",
    f'{LEAST}count = 2\npattern = "g"': "groups[0].pattern: expected one {} for the number of the group, got 'g'",
    f'{LEAST}pattern = "{{}}{{}}"': "groups[0].pattern: expected one {} for the number of the group, got '{}{}'",
    f"{LEAST}[[groups]]": "groups[1].name: expected one of its own for each population, got 'group' again",
    f'{LEAST}[[groups]]\nname = "x"\npattern = "group-{{}}"': "groups[1].pattern: expected one of its own for each "
    "population, got 'group-{}' again",
    f'{LEAST}from_file = "g.csv"\n[[groups]]\nname = "x"\nfrom_file = "g.csv"': "groups[1].from_file: expected one "
    "of its own for each population, got 'g.csv' again",
    f"{LEAST}hot_partitions = [-1]": "groups[0].hot_partitions[0] = -1: expected a whole number >= 0",
    f"{LEAST}hot_partitions = [50]": "groups[0].hot_partitions: expected partitions under 50, got 50",
    f"{LEAST}hot_share = 1.5": "groups[0].hot_share = 1.5: expected a number <= 1",
    f'{LEAST}from_file = "g.csv"\npattern = "x-{{}}"': "groups[0].pattern: expected none beside from_file, whose names "
    "are as they are",
    f'{LEAST}from_file = "g.csv"\nhot_partitions = [1]': "groups[0].hot_partitions: expected none beside from_file, "
    "whose names are as they are",
    # members per group
    f"{LEAST}members = 0": "groups[0].members = 0: expected a whole number >= 1",
    f'{LEAST}members = "x"': "groups[0].members = 'x': expected a whole number or a table, got text",
    f"{LEAST}members = {{}}": "groups[0].members: expected one of uniform, zipf and histogram, got none",
    f"{LEAST}members = {{ even = 4 }}": "groups[0].members.even = 4: no such key; expected one of uniform, zipf, max, "
    "histogram",
    f"{LEAST}members = {{ uniform = [4] }}": "groups[0].members.uniform = [4]: expected a list of 2, got 1",
    f"{LEAST}members = {{ uniform = [0, 4] }}": "groups[0].members.uniform[0] = 0: expected a whole number >= 1",
    f"{LEAST}members = {{ uniform = [4, 20_000] }}": "groups[0].members.uniform[1] = 20000: expected a whole number <= "
    "10000",
    f"{LEAST}members = {{ uniform = [4, 1] }}": "groups[0].members.uniform: expected [fewest, most], got [4, 1]",
    f"{LEAST}members = {{ zipf = 1.2 }}": "groups[0].members.max: expected together with zipf, got zipf 1.2 and max "
    "None",
    f"{LEAST}members = {{ zipf = 0, max = 4 }}": "groups[0].members.zipf = 0: expected a number > 0",
    f"{LEAST}members = {{ zipf = 1.2, max = 20_000 }}": "groups[0].members.max = 20000: expected a whole number <= "
    "10000",
    f"{LEAST}members = {{ uniform = [1, 2], zipf = 1, max = 3 }}": "groups[0].members: expected one of uniform, zipf "
    "and histogram, got uniform and zipf",
    f"{LEAST}members = {{ histogram = {{ x = 1 }} }}": "groups[0].members.histogram: expected numbers of members, 1 to "
    "10000, got 'x'",
    f"{LEAST}members = {{ histogram = {{ 4 = -1 }} }}": "groups[0].members.histogram.4 = -1: expected a number >= 0",
    f"{LEAST}members = {{ histogram = {{ 4 = 0 }} }}": "groups[0].members.histogram: expected a weight over 0, got "
    "{'4': 0.0}",
    # populations: intervals
    f'{LEAST}topics = ["x"]': "groups[0].topics: expected names out of ['orders'], got 'x'",
    f'{LEAST}assignor = "uniform"': "groups[0].assignor = 'uniform': expected one of 'range', 'roundrobin', 'sticky', "
    "'cooperative-sticky'",
    f"{LEAST}session_timeout_ms = 6000\nheartbeat_interval_ms = 6000": "groups[0].heartbeat_interval_ms: expected less "
    "than session_timeout_ms (6000) even with jitter, got 6000",
    f"{LEAST}session_timeout_ms = 6000\nheartbeat_interval_ms = 5500": "groups[0].heartbeat_interval_ms: expected less "
    "than session_timeout_ms (6000) even with jitter, got 5500",
    f"{LEAST}session_timeout_ms = 5000": "groups[0].session_timeout_ms: expected 6000 to 1800000, which is what the "
    "cluster takes (group.min.session.timeout.ms, group.max.session.timeout.ms), got 5000",
    f"{LEAST}session_timeout_ms = 6000\ntimeout_jitter = 0.1": "groups[0].session_timeout_ms: expected 6000 to "
    "1800000, which is what the cluster takes (group.min.session.timeout.ms, group.max.session.timeout.ms), got 5400",
    f"{LEAST}rebalance_timeout_ms = 0": "groups[0].rebalance_timeout_ms = 0: expected a whole number >= 1",
    f"{LEAST}commit_interval_ms = -1": "groups[0].commit_interval_ms = -1: expected a whole number >= 0",
    f"{LEAST}jitter = 1": "groups[0].jitter = 1: expected a number < 1",
    f"{LEAST}consume_per_s = -1": "groups[0].consume_per_s = -1: expected a number >= 0",
    f"{LEAST}static = 2": "groups[0].static = 2: expected a number <= 1",
    f'{LEAST}static = 0.5\n[cluster]\nas_version = "2.2"': "groups[0].static: expected no static members with "
    "cluster.as_version 2.2, which is too old",
    f'{LEAST}session_timeout_ms = 600_000\n[cluster]\nas_version = "2.2"': "groups[0].session_timeout_ms: expected "
    "6000 to 300000, which is what the cluster takes (group.min.session.timeout.ms, group.max.session.timeout.ms), got "
    "600000",
    f"{LEAST}hot_share = 0.5": "groups[0].hot_share: expected hot_partitions beside it, got 0.5 alone",
    f'{LEAST}from_column = "x"': "groups[0].from_column: expected from_file beside it, got 'x' alone",
    f'{LEAST}name = "a"\npattern = "x-{{}}"\n[[groups]]\nname = "b"\npattern = "x-1{{}}"': "groups[1].pattern: "
    "expected names that no other population can have, got 'x-1{}' beside 'x-{}'",
    f"{LEAST}grow = {{ instances = 20_000, at_s = 3 }}": "groups[0].grow.instances = 20000: expected a whole number <= "
    "10000",
    # pacing
    f"{LEAST}[pacing]\nrate_per_s = 200": "pacing.rate_per_s: expected 100 for each of 1 members at most, got 200",
    # arrival
    f"{LEAST}arrival = {{ at_s = -1 }}": "groups[0].arrival.at_s = -1: expected a number >= 0",
    f"{LEAST}arrival = {{ ramp_s = 0 }}": "groups[0].arrival.ramp_s = 0: expected a number > 0",
    f"{LEAST}arrival = {{ ramp_s = 90 }}": "groups[0].arrival: expected all members to start before the groups leave "
    "(90 s), got 90 s for the last one",
    f"{LEAST}count = 100\narrival = {{ poisson_per_s = 1 }}": "groups[0].arrival: expected all members to start before "
    "the groups leave (90 s), got 100 s for the last one",
    f"{LEAST}arrival = {{ bursts = 2 }}": "groups[0].arrival.every_s: expected together with bursts, got bursts 2, "
    "every_s None",
    f"{LEAST}arrival = {{ bursts = 10, every_s = 10 }}": "groups[0].arrival: expected all members to start before the "
    "groups leave (90 s), got 90 s for the last one",
    f"{LEAST}arrival = {{ ramp_s = 1, poisson_per_s = 1 }}": "groups[0].arrival: expected one of ramp_s, poisson_per_s "
    "and bursts, got ramp_s and poisson_per_s",
    f'{LEAST}arrival = {{ by = "topic" }}': "groups[0].arrival.by = 'topic': expected one of 'member', 'group'",
    # behaviors
    f"{LEAST}leave = {{ at_s = 5 }}": "groups[0].leave.share is missing",
    f"{LEAST}leave = {{ share = 0.5 }}": "groups[0].leave.at_s is missing",
    f"{LEAST}leave = {{ share = 1.5, at_s = 5 }}": "groups[0].leave.share = 1.5: expected a number <= 1",
    f"{LEAST}leave = {{ share = 1, at_s = 5, for_s = 5 }}": "groups[0].leave.for_s = 5: no such key; expected one of "
    "share, at_s, return_after_s",
    f'{LEAST}crash = {{ share = 1, at_s = "x" }}': "groups[0].crash.at_s = 'x': expected a number or a list, got text",
    f"{LEAST}crash = {{ share = 1, at_s = -5 }}": f"groups[0].crash.at_s: {SPANS} -5",
    f"{LEAST}crash = {{ share = 1, at_s = [5, 4] }}": f"groups[0].crash.at_s: {SPANS} [5.0, 4.0]",
    f"{LEAST}crash = {{ share = 1, at_s = [5] }}": "groups[0].crash.at_s = [5]: expected a list of 2, got 1",
    f"{LEAST}crash = {{ share = 1, at_s = 91 }}": "groups[0].crash: expected to be over before the groups leave (90 s),"
    " got 91 s",
    f"{LEAST}crash = {{ share = 1, at_s = 80, return_after_s = [1, 20] }}": "groups[0].crash: expected to be over "
    "before the groups leave (90 s), got 100 s",
    f"{LEAST}arrival.ramp_s = 9\npause = {{ share = 1, at_s = 5, for_s = 1 }}": "groups[0].pause.at_s: expected 9 or "
    "more, when all members have started, got 5",
    f"{LEAST}pause = {{ share = 1, at_s = 5 }}": "groups[0].pause.for_s is missing",
    f"{LEAST}slow = {{ share = 1, at_s = 5, for_s = -1 }}": f"groups[0].slow.for_s: {SPANS} -1",
    f"{LEAST}zombie = {{ share = 1, at_s = 45, for_s = 1 }}": "groups[0].zombie: expected to be over before the groups "
    "leave (90 s), got 91 s",
    f"{LEAST}leave = {{ share = 0.6, at_s = 5 }}\ncrash = {{ share = 0.6, at_s = 5 }}": "groups[0].leave.share: "
    "expected that all shares add up to 1 at most, got leave 0.6, crash 0.6",
    f"{LEAST}restart = {{ at_s = 5, every_s = -1 }}": f"groups[0].restart.every_s: {SPANS} -1",
    f"{LEAST}members = 100\nrestart = {{ at_s = 5, return_after_s = 0 }}": "groups[0].restart: expected to be over "
    "before the groups leave (90 s), got 104 s",
    f"{LEAST}grow = {{ instances = 0, at_s = 5 }}": "groups[0].grow.instances = 0: expected a whole number >= 1",
    f"{LEAST}grow = {{ instances = 100, at_s = 5, every_s = 1 }}": "groups[0].grow: expected to be over before the "
    "groups leave (90 s), got 104 s",
    f'{LEAST}grow = {{ instances = 1, at_s = 5, how = "batch" }}': "groups[0].grow.how = 'batch': expected one of "
    "'dynamic', 'static'",
    # loads
    f'{LEAST}[[load]]\nkind = "x"': "load[0].kind = 'x': expected one of 'find-coordinators', 'fetch-offsets', "
    "'describe-groups', 'list-groups', 'add-members'",
    f'{LEAST}[[load]]\nkind = "list-groups"\nbatch = 0': "load[0].batch = 0: expected a whole number >= 1",
    f'{LEAST}[[load]]\nkind = "list-groups"\nrate_per_s = 0': "load[0].rate_per_s = 0: expected a number > 0",
    f'{LEAST}[[load]]\nkind = "list-groups"\nat_s = 100': "load[0].at_s: expected to be over within duration_s (100), "
    "got an end at 100",
    f'{LEAST}[[load]]\nkind = "list-groups"\nat_s = 60\nfor_s = 50': "load[0].for_s: expected to be over within "
    "duration_s (100), got an end at 110",
    f'{LEAST}[[load]]\nkind = "fetch-offsets"\ngroups = "x"': "load[0].groups: expected the name of a population, out "
    "of ['group'], got 'x'",
    f'{LEAST}[[load]]\nkind = "fetch-offsets"\ninstances = 3': "load[0].instances: expected none but with add-members, "
    "got 3 with fetch-offsets",
    f'{LEAST}[[load]]\nkind = "add-members"': "load[0].instances: expected a whole number with add-members, got None "
    "with add-members",
    f'{LEAST}[[load]]\nkind = "add-members"\ninstances = 3': "load[0].groups: expected the name of a population whose "
    "members are to be added, got none",
    f'{LEAST}[[load]]\nkind = "add-members"\ninstances = 3\ngroups = "group"': "load[0].instances: expected a "
    "population that has so many static members to grow by later than at_s (0), got 3 for 'group'",
    f'{BATCH_JOIN}[[load]]\nkind = "add-members"\ninstances = 5\ngroups = "group"': "load[0].instances: expected a "
    "population that has so many static members to grow by later than at_s (0), got 5 for 'group'",
    BATCH_JOIN.replace('["batch-join"]', "[]")
    + '[[load]]\nkind = "add-members"\ninstances = 4\ngroups = "group"': "load[0].kind: expected 'batch-join' among "
    "cluster.proposals with add-members, got none",
    # events
    f'{LEAST}[[event]]\ndo = "rolling_restart"': "event[0].at_s = None: expected seconds, 0 or more and less than 100",
    f'{LEAST}[[event]]\nat_s = 100\ndo = "x"': "event[0].at_s = 100: expected seconds, 0 or more and less than 100",
    f'{LEAST}[[event]]\nat_s = 1\ndo = "stop_broker"': "event[0]: stop_broker: node_id is missing, expected a whole "
    "number",
    f"event = [5]\n{LEAST}": "event[0] = 5: expected a table, got a whole number",
    # pacing
    f"{LEAST}[pacing]\nspeed = 0": "pacing.speed = 0: expected a number > 0",
    f"{LEAST}[pacing]\nclosed_loop = 1": "pacing.closed_loop = 1: expected true or false, got a whole number",
    f"{LEAST}[pacing]\nrate_per_s = -3": "pacing.rate_per_s = -3: expected a number > 0",
    f"{LEAST}[pacing]\nclosed_loop = true\nrate_per_s = 3": "pacing.rate_per_s: expected none in a closed loop, got 3",
    f"{LEAST}count = 90\n[pacing]\nrate_per_s = 2": "pacing.rate_per_s: expected heartbeats faster than the session "
    "timeout of groups[0] (45000 ms), got one in 45000 ms",
    f"{LEAST}count = 80\ntimeout_jitter = 0.1\n[pacing]\nrate_per_s = 2": "pacing.rate_per_s: expected heartbeats "
    "faster than the session timeout of groups[0] (40500 ms), got one in 40000 ms",
    # expectations and promises
    f"{LEAST}[[expect]]\nwhat = 5": "expect[0].what = 5: no such key; expected one of metric, comparison, value, api, "
    "groups",
    LEAST + EXPECT.replace('"<"', '"=<"'): "expect[0].comparison = '=<': expected one of '<', '<=', '==', '>=', '>'",
    LEAST + EXPECT + EXPECT.replace("5", "'5'"): "expect[1].value = '5': expected a number, got text",
    LEAST + EXPECT.replace("value = 5\n", ""): "expect[0].value is missing",
    LEAST + EXPECT.replace("p99_ms", "p98_ms"): "expect[0].metric: expected one of requests, requests_per_s, p50_ms, ",
    LEAST + EXPECT.replace("p99_ms", "errors.NOT"): "expect[0].metric: expected one of requests, requests_per_s, ",
    LEAST + EXPECT.replace("p99_ms", "rebalances") + 'api = "Heartbeat"': "expect[0].api: expected with requests, "
    "requests_per_s, p50_ms, p99_ms, p99_9_ms, max_ms, unexpected_errors, lost, unanswered alone, got metric "
    "'rebalances'",
    f'{LEAST}{EXPECT}api = "Fetch"': "expect[0].api = 'Fetch': expected one of 'FindCoordinator', 'Metadata', ",
    f'{LEAST}{EXPECT}groups = "group"': "expect[0].groups: expected with generations, members_joined, "
    "unassigned_member_s alone and without api, got metric 'p99_ms'",
    LEAST + EXPECT.replace("p99_ms", "generations") + 'groups = "x"': "expect[0].groups: expected the name of a "
    "population, out of ['group'], got 'x'",
    f'{LEAST}[promises]\ncheck = ["x"]': "promises.check: expected names out of one-owner, ",
    f'{LEAST}[promises]\ncheck = "all"': "promises.check = 'all': expected a list, got text",
}
