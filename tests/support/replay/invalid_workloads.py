"""Workload files that are not as they should be, each with the sentence that it is told. Knows no reading."""

TOP = "duration_s = 100\ntopics = { orders = 1 }\n"
LEAST = TOP + "[[groups]]\n"
EXPECT = '[[expect]]\nmetric = "p99_ms"\ncomparison = "<"\nvalue = 5\n'
BATCH_JOIN = (
    'duration_s = 100\ntopics = { orders = 1 }\ncluster.proposals = ["batch-join"]\n'
    '[[groups]]\ngrow = { instances = 4, at_s = 10, how = "static" }\n'
)

WRONG = {
    # the whole
    "topics = { orders = 1 }": "2 errors\n  duration_s is missing: expected a number > 0 and <= 1000000\n  "
    "groups is missing: expected a list",
    "duration_s = 3\n[[groups]]": "topics is missing: expected a table",
    TOP: "groups is missing: expected a list",
    f"{TOP}groups = []": "groups=[]: expected at least one [[groups]] table",
    f"{TOP}[groups]\ncount = 5": "groups={'count': 5}: expected a list",
    f"{TOP}x = ": "expected TOML: Invalid value (at line 3, column 5)",
    f"{TOP}speed = 3\n[[groups]]": "speed=3: unknown field; expected one of duration_s, topics, seed, "
    "cluster, groups, load, event, pacing, expect, promises; did you mean 'seed'?",
    "duration_s = 0\ntopics = { orders = 1 }\n[[groups]]": "duration_s=0: expected a number > 0 and <= 1000000",
    "duration_s = inf\ntopics = { orders = 1 }\n[[groups]]": "duration_s=inf: expected a finite number",
    'duration_s = nan\ntopics = { orders = 1 }\n[[event]]\nat_s = 1\ndo = "reset"\n[[groups]]': (
        "duration_s=nan: expected a finite number"
    ),
    "duration_s = 3\ntopics = {}\n[[groups]]": "topics={}: expected at least one topic with its number of partitions",
    'duration_s = 3\ntopics = { "or ders" = 1 }\n[[groups]]': "topics='or ders': expected names other than "
    "__consumer_offsets, __transaction_state, of 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'",
    "duration_s = 3\ntopics = { __consumer_offsets = 1 }\n[[groups]]": "topics='__consumer_offsets': "
    "expected names other than __consumer_offsets, __transaction_state, of 1 to 249 of a-z, A-Z, 0-9, '.', "
    "'_' and '-', not '.' or '..'",
    "duration_s = 3\ntopics = { orders = 200_000 }\n[[groups]]": "topics.orders=200000: expected an integer "
    "from 1 to 100000",
    "duration_s = 1e300\ntopics = { orders = 1 }\n[[groups]]": "duration_s=1e+300: expected a number > 0 and "
    "<= 1000000",
    "duration_s = 3\ntopics = { orders = 0 }\n[[groups]]": "topics.orders=0: expected an integer from 1 to 100000",
    f'{TOP}seed = "x"\n[[groups]]': "seed='x': expected an integer or none",
    # the cluster
    f"{LEAST}[cluster]\nbrokers = 0": "cluster.brokers=0: expected an integer from 1 to 100",
    f'{LEAST}[cluster]\nas_version = "2.99"': "cluster.as_version='2.99': expected one of 0.10.0, 0.10.1, "
    "0.10.2, 0.11, 1.0, 1.1, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 3.0, 3.1, 3.2, 3.3, ",
    f'{LEAST}[cluster]\nas_version = "2.8"\nproposals = ["batch-join"]': "cluster.proposals=['batch-join']: "
    "expected none with as_version 2.8",
    f'{LEAST}[cluster]\nproposals = ["x"]': "cluster.proposals[0]='x': expected one of batch-join",
    f"{LEAST}[cluster.config]\n'group.max.sise' = 3": "cluster.config.group.max.sise=3: unknown setting; "
    "expected one of auto.create.topics.enable, default.replication.factor, delete.topic.enable, ",
    f"{LEAST}[cluster]\nload_ms = -1": "cluster.load_ms=-1: expected an integer >= 0",
    # populations: names and numbers
    f"{LEAST}cuont = 5": "groups[0].cuont=5: unknown field; expected one of name, pattern, count, from_file, "
    "from_column, hot_partitions, hot_share, members, topics, assignor, ",
    f'{LEAST}count = "many"': "groups[0].count='many': expected an integer from 1 to 100000000 or none",
    f"{LEAST}count = 100_000_001": "groups[0].count=100000001: expected an integer from 1 to 100000000 or none",
    f'{LEAST}pattern = ""': "groups[0].pattern='': expected a string of 1 or more characters or none",
    f"{LEAST}count = 0": "groups[0].count=0: expected an integer from 1 to 100000000 or none",
    f'{LEAST}name = ""': "groups[0].name='': expected a string of 1 or more characters",
    f'{LEAST}count = 2\npattern = "g"': "groups[0].pattern='g': expected one {} for the number of the group",
    f'{LEAST}pattern = "{{}}{{}}"': "groups[0].pattern='{}{}': expected one {} for the number of the group",
    f"{LEAST}[[groups]]": "groups[1].name='group': expected one that no other population has",
    f'{LEAST}[[groups]]\nname = "x"\npattern = "group-{{}}"': "groups[1].pattern='group-{}': expected one "
    "that no other population has",
    f'{LEAST}from_file = "g.csv"\n[[groups]]\nname = "x"\nfrom_file = "g.csv"': "groups[1].from_file='g.csv': "
    "expected one that no other population has",
    f"{LEAST}hot_partitions = [-1]": "groups[0].hot_partitions[0]=-1: expected an integer >= 0",
    f"{LEAST}hot_partitions = [50]": "groups[0].hot_partitions[0]=50: expected an integer < 50, the number "
    "of partitions of __consumer_offsets",
    f"{LEAST}hot_share = 1.5": "groups[0].hot_share=1.5: expected a number from 0 to 1",
    f'{LEAST}from_file = "g.csv"\npattern = "x-{{}}"': "groups[0].pattern='x-{}': expected none beside "
    "from_file, whose names are as they are",
    f'{LEAST}from_file = "g.csv"\nhot_partitions = [1]': "groups[0].hot_partitions=[1]: expected none beside "
    "from_file, whose names are as they are",
    # members per group
    f"{LEAST}members = 0": "groups[0].members=0: expected an integer from 1 to 10000 or a table",
    f'{LEAST}members = "x"': "groups[0].members='x': expected an integer from 1 to 10000 or a table",
    f"{LEAST}members = {{}}": "groups[0].members.uniform is missing: expected one of uniform, zipf, histogram",
    f"{LEAST}members = {{ even = 4 }}": "groups[0].members.even=4: unknown field; expected one of uniform, "
    "zipf, max, histogram",
    f"{LEAST}members = {{ uniform = [4] }}": "groups[0].members.uniform=[4]: expected a list of 2 or none",
    f"{LEAST}members = {{ uniform = [0, 4] }}": "groups[0].members.uniform[0]=0: expected an integer from 1 to 10000",
    f"{LEAST}members = {{ uniform = [4, 20_000] }}": "groups[0].members.uniform[1]=20000: expected an "
    "integer from 1 to 10000",
    f"{LEAST}members = {{ uniform = [4, 1] }}": "groups[0].members.uniform=[4, 1]: expected [fewest, most]",
    f"{LEAST}members = {{ zipf = 1.2 }}": "groups[0].members.max is missing: expected an integer >= 1 with zipf",
    f"{LEAST}members = {{ zipf = 0, max = 4 }}": "groups[0].members.zipf=0: expected a number > 0 or none",
    f"{LEAST}members = {{ zipf = 1.2, max = 20_000 }}": "groups[0].members.max=20000: expected an integer "
    "from 1 to 10000 or none",
    f"{LEAST}members = {{ uniform = [1, 2], zipf = 1, max = 3 }}": "groups[0].members.zipf=1.0: expected "
    "none beside uniform: one of uniform, zipf, histogram",
    f"{LEAST}members = {{ histogram = {{ x = 1 }} }}": "groups[0].members.histogram='x': expected numbers of "
    "members from 1 to 10000",
    f"{LEAST}members = {{ histogram = {{ 4 = -1 }} }}": "groups[0].members.histogram.4=-1: expected a number >= 0",
    f"{LEAST}members = {{ histogram = {{ 4 = 0 }} }}": "groups[0].members.histogram={'4': 0.0}: expected a weight > 0",
    # populations: intervals
    f'{LEAST}topics = ["x"]': "groups[0].topics[0]='x': expected one of orders",
    f'{LEAST}assignor = "uniform"': "groups[0].assignor='uniform': expected one of range, roundrobin, "
    "sticky, cooperative-sticky",
    f"{LEAST}session_timeout_ms = 6000\nheartbeat_interval_ms = 6000": "groups[0].heartbeat_interval_ms=6000: "
    "expected less than session_timeout_ms, which is 6000, even with jitter",
    f"{LEAST}session_timeout_ms = 6000\nheartbeat_interval_ms = 5500": "groups[0].heartbeat_interval_ms=5500: "
    "expected less than session_timeout_ms, which is 6000, even with jitter",
    f"{LEAST}session_timeout_ms = 5000": "groups[0].session_timeout_ms=5000: expected 6000 to 1800000 even "
    "with timeout_jitter, which is what the cluster accepts (group.min.session.timeout.ms, "
    "group.max.session.timeout.ms)",
    f"{LEAST}session_timeout_ms = 6000\ntimeout_jitter = 0.1": "groups[0].session_timeout_ms=6000: expected "
    "6000 to 1800000 even with timeout_jitter, which is what the cluster accepts "
    "(group.min.session.timeout.ms, group.max.session.timeout.ms)",
    f"{LEAST}rebalance_timeout_ms = 0": "groups[0].rebalance_timeout_ms=0: expected an integer from 1 to 2147483647",
    f"{LEAST}commit_interval_ms = -1": "groups[0].commit_interval_ms=-1: expected an integer from 0 to 2147483647",
    f"{LEAST}jitter = 1": "groups[0].jitter=1: expected a number >= 0 and < 1",
    f"{LEAST}consume_per_s = -1": "groups[0].consume_per_s=-1: expected a number >= 0",
    f"{LEAST}static = 2": "groups[0].static=2: expected a number from 0 to 1",
    f'{LEAST}static = 0.5\n[cluster]\nas_version = "2.2"': "groups[0].static=0.5: expected no static members "
    "with cluster.as_version 2.2, which is too old",
    f'{LEAST}session_timeout_ms = 600_000\n[cluster]\nas_version = "2.2"': "groups[0].session_timeout_ms=600000: "
    "expected 6000 to 300000 even with timeout_jitter, which is what the cluster accepts "
    "(group.min.session.timeout.ms, group.max.session.timeout.ms)",
    f"{LEAST}hot_share = 0.5": "groups[0].hot_share=0.5: expected none without hot_partitions",
    f'{LEAST}from_column = "x"': "groups[0].from_column='x': expected none without from_file",
    f'{LEAST}name = "a"\npattern = "x-{{}}"\n[[groups]]\nname = "b"\npattern = "x-1{{}}"': "groups[1].pattern='x-1{}': "
    "expected names that no other population can have, 'x-{}' can",
    f"{LEAST}grow = {{ instances = 20_000, at_s = 3 }}": "groups[0].grow.instances=20000: expected an "
    "integer from 1 to 10000",
    # pacing
    f"{LEAST}[pacing]\nrate_per_s = 200": "pacing.rate_per_s=200.0: expected 100 for each of 1 members at most",
    # arrival
    f"{LEAST}arrival = {{ at_s = -1 }}": "groups[0].arrival.at_s=-1: expected a number >= 0",
    f"{LEAST}arrival = {{ ramp_s = 0 }}": "groups[0].arrival.ramp_s=0: expected a number > 0 or none",
    f"{LEAST}arrival = {{ ramp_s = 90 }}": "groups[0].arrival ends at 90 s: expected an end before the "
    "groups leave, at 90 s",
    f"{LEAST}count = 100\narrival = {{ poisson_per_s = 1 }}": "groups[0].arrival ends at 100 s: expected an "
    "end before the groups leave, at 90 s",
    f"{LEAST}arrival = {{ bursts = 2 }}": "groups[0].arrival.every_s is missing: expected a number > 0 with bursts",
    f"{LEAST}arrival = {{ bursts = 10, every_s = 10 }}": "groups[0].arrival ends at 90 s: expected an end "
    "before the groups leave, at 90 s",
    f"{LEAST}arrival = {{ ramp_s = 1, poisson_per_s = 1 }}": "groups[0].arrival.poisson_per_s=1.0: expected "
    "none beside ramp_s: one of ramp_s, poisson_per_s, bursts",
    f'{LEAST}arrival = {{ by = "topic" }}': "groups[0].arrival.by='topic': expected one of member, group",
    # behaviors
    f"{LEAST}leave = {{ at_s = 5 }}": "groups[0].leave.share is missing: expected a number from 0 to 1",
    f"{LEAST}leave = {{ share = 0.5 }}": "groups[0].leave.at_s is missing: expected a number or a list of 2",
    f"{LEAST}leave = {{ share = 1.5, at_s = 5 }}": "groups[0].leave.share=1.5: expected a number from 0 to 1",
    f"{LEAST}leave = {{ share = 1, at_s = 5, for_s = 5 }}": "groups[0].leave.for_s=5: unknown field; "
    "expected one of share, at_s, return_after_s",
    f'{LEAST}crash = {{ share = 1, at_s = "x" }}': "groups[0].crash.at_s='x': expected a number or a list of 2",
    f"{LEAST}crash = {{ share = 1, at_s = -5 }}": "groups[0].crash.at_s=-5.0: expected seconds >= 0, or [fewest, most]",
    f"{LEAST}crash = {{ share = 1, at_s = [5, 4] }}": "groups[0].crash.at_s=[5.0, 4.0]: expected seconds >= "
    "0, or [fewest, most]",
    f"{LEAST}crash = {{ share = 1, at_s = [5] }}": "groups[0].crash.at_s=[5]: expected a number or a list of 2",
    f"{LEAST}crash = {{ share = 1, at_s = 91 }}": "groups[0].crash ends at 91 s: expected an end before the "
    "groups leave, at 90 s",
    f"{LEAST}crash = {{ share = 1, at_s = 80, return_after_s = [1, 20] }}": "groups[0].crash ends at 100 s: "
    "expected an end before the groups leave, at 90 s",
    f"{LEAST}arrival.ramp_s = 9\npause = {{ share = 1, at_s = 5, for_s = 1 }}": "groups[0].pause.at_s=5.0: "
    "expected 9 or more, when all members have started",
    f"{LEAST}pause = {{ share = 1, at_s = 5 }}": "groups[0].pause.for_s is missing: expected a number or a list of 2",
    f"{LEAST}slow = {{ share = 1, at_s = 5, for_s = -1 }}": "groups[0].slow.for_s=-1.0: expected seconds >= "
    "0, or [fewest, most]",
    f"{LEAST}zombie = {{ share = 1, at_s = 45, for_s = 1 }}": "groups[0].zombie ends at 91 s: expected an "
    "end before the groups leave, at 90 s",
    f"{LEAST}leave = {{ share = 0.6, at_s = 5 }}\ncrash = {{ share = 0.6, at_s = 5 }}": "groups[0].leave.share=0.6: "
    "expected shares that add up to 1 at most, they are leave 0.6, crash 0.6",
    f"{LEAST}restart = {{ at_s = 5, every_s = -1 }}": "groups[0].restart.every_s=-1.0: expected seconds >= "
    "0, or [fewest, most]",
    f"{LEAST}members = 100\nrestart = {{ at_s = 5, return_after_s = 0 }}": "groups[0].restart ends at 104 s: "
    "expected an end before the groups leave, at 90 s",
    f"{LEAST}grow = {{ instances = 0, at_s = 5 }}": "groups[0].grow.instances=0: expected an integer from 1 to 10000",
    f"{LEAST}grow = {{ instances = 100, at_s = 5, every_s = 1 }}": "groups[0].grow ends at 104 s: expected "
    "an end before the groups leave, at 90 s",
    f'{LEAST}grow = {{ instances = 1, at_s = 5, how = "batch" }}': "groups[0].grow.how='batch': expected one "
    "of dynamic, static",
    # loads
    f'{LEAST}[[load]]\nkind = "x"': "load[0].kind='x': expected one of find-coordinators, fetch-offsets, "
    "describe-groups, list-groups, add-members",
    f'{LEAST}[[load]]\nkind = "list-groups"\nbatch = 0': "load[0].batch=0: expected an integer >= 1",
    f'{LEAST}[[load]]\nkind = "list-groups"\nrate_per_s = 0': "load[0].rate_per_s=0: expected a number > 0 or none",
    f'{LEAST}[[load]]\nkind = "list-groups"\nat_s = 100': "load[0].at_s=100.0: expected a number < "
    "duration_s, which is 100",
    f'{LEAST}[[load]]\nkind = "list-groups"\nat_s = 60\nfor_s = 50': "load[0].for_s=50.0: expected an end "
    "within duration_s, which is 100, not at 110",
    f'{LEAST}[[load]]\nkind = "fetch-offsets"\ngroups = "x"': "load[0].groups='x': expected one of group",
    f'{LEAST}[[load]]\nkind = "fetch-offsets"\ninstances = 3': "load[0].instances=3: expected none with "
    "fetch-offsets, only with add-members",
    f'{LEAST}[[load]]\nkind = "add-members"': "2 errors\n  load[0].instances is missing: expected an integer "
    ">= 1 with add-members\n  load[0].groups is missing: expected the name of a population whose members are "
    "to be added",
    f'{LEAST}[[load]]\nkind = "add-members"\ninstances = 3': "load[0].groups is missing: expected the name "
    "of a population whose members are to be added",
    f'{LEAST}[[load]]\nkind = "add-members"\ninstances = 3\ngroups = "group"': "2 errors\n  "
    "load[0].instances=3: expected a population that has so many static members to grow by later than at_s (0), ",
    f'{BATCH_JOIN}[[load]]\nkind = "add-members"\ninstances = 5\ngroups = "group"': "load[0].instances=5: "
    "expected a population that has so many static members to grow by later than at_s (0), 'group' has not",
    BATCH_JOIN.replace('["batch-join"]', "[]")
    + '[[load]]\nkind = "add-members"\ninstances = 4\ngroups = "group"': "load[0].kind='add-members': "
    "expected 'batch-join' among cluster.proposals with it",
    # events
    f'{LEAST}[[event]]\ndo = "rolling_restart"': "event[0].at_s is missing: expected a number >= 0 and < 100",
    f'{LEAST}[[event]]\nat_s = 100\ndo = "reset"': "event[0].at_s=100: expected a number >= 0 and < 100",
    f'{LEAST}[[event]]\nat_s = 1\ndo = "stop_broker"': "event[0].node_id is missing: expected an integer",
    f"event = [5]\n{LEAST}": "event[0]=5: expected a table",
    # pacing
    f"{LEAST}[pacing]\nspeed = 0": "pacing.speed=0: expected a number > 0 and <= 1000",
    f"{LEAST}[pacing]\nclosed_loop = 1": "pacing.closed_loop=1: expected true or false",
    f"{LEAST}[pacing]\nrate_per_s = -3": "pacing.rate_per_s=-3: expected a number > 0 or none",
    f"{LEAST}[pacing]\nclosed_loop = true\nrate_per_s = 3": "pacing.rate_per_s=3.0: expected none in a closed loop",
    f"{LEAST}count = 90\n[pacing]\nrate_per_s = 2": "pacing.rate_per_s=2.0: expected heartbeats faster than "
    "the session timeout of groups[0] (45000 ms), not one in 45000 ms",
    f"{LEAST}count = 80\ntimeout_jitter = 0.1\n[pacing]\nrate_per_s = 2": "pacing.rate_per_s=2.0: expected "
    "heartbeats faster than the session timeout of groups[0] (40500 ms), not one in 40000 ms",
    # expectations and promises
    f"{LEAST}[[expect]]\nwhat = 5": "4 errors\n  expect[0].what=5: unknown field; expected one of metric, "
    "comparison, value, api, ",
    LEAST + EXPECT.replace('"<"', '"=<"'): "expect[0].comparison='=<': expected one of <, <=, ==, >=, >; did "
    "you mean '<'?",
    LEAST + EXPECT + EXPECT.replace("5", "'5'"): "expect[1].value='5': expected a number",
    LEAST + EXPECT.replace("value = 5\n", ""): "expect[0].value is missing: expected a number",
    LEAST + EXPECT.replace("p99_ms", "p98_ms"): "expect[0].metric='p98_ms': expected one of requests, "
    "requests_per_s, p50_ms, p99_ms, p99_9_ms, max_ms, unexpected_errors, errors.<NAME>, unanswered, ",
    LEAST + EXPECT.replace("p99_ms", "errors.NOT"): "expect[0].metric='errors.NOT': expected one of "
    "errors.UNKNOWN_SERVER_ERROR, errors.NONE, errors.OFFSET_OUT_OF_RANGE, errors.CORRUPT_MESSAGE, ",
    LEAST + EXPECT.replace("p99_ms", "rebalances") + 'api = "Heartbeat"': "expect[0].api='Heartbeat': "
    "expected none with metric 'rebalances', only with requests, requests_per_s, p50_ms, p99_ms, p99_9_ms, "
    "max_ms, unexpected_errors, lost, unanswered",
    f'{LEAST}{EXPECT}api = "Fetch"': "expect[0].api='Fetch': expected one of FindCoordinator, Metadata, "
    "JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch, LeaveGroup, ",
    f'{LEAST}{EXPECT}groups = "group"': "expect[0].groups='group': expected none with metric 'p99_ms', only "
    "with generations, members_joined, unassigned_member_s and without api",
    LEAST + EXPECT.replace("p99_ms", "generations") + 'groups = "x"': "expect[0].groups='x': expected one of group",
    f'{LEAST}[promises]\ncheck = ["x"]': "promises.check[0]='x': expected one of one-owner, covered, "
    "one-leader, generations-rise, commits-kept, silent-out, beating-stays, stale-refused, ",
    f'{LEAST}[promises]\ncheck = "all"': "promises.check='all': expected a list or none",
}
