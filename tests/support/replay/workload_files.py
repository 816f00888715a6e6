"""Workload files for tests: minimal, with all keys, and invalid ones with their errors. Does not depend on the reader.

`INVALID` maps texts of files to their errors, grouped by the part of the file with the mistake. An error that ends in
a space is only the beginning of the message: a long list of choices follows. A new key of the format goes into
`ALL_KEYS`.
"""

WITHOUT_GROUPS = "duration_s = 100\ntopics = { orders = 1 }\n"
MINIMAL = WITHOUT_GROUPS + "[[groups]]\n"
WITH_TARGET = "duration_s = 100\ntopics = { orders = 1, payments = 1 }\n[[groups]]\n"
TRANSACTIONAL = f"{WITH_TARGET}transactional = true\n"
CONSUMERS = f'{MINIMAL}protocol = "consumer"\n'
EXPECT = '[[expect]]\nmetric = "p99_ms"\ncomparison = "<"\nvalue = 5\n'
BATCH_JOIN = (
    'duration_s = 100\ntopics = { orders = 1 }\ncluster.proposals = ["batch-join"]\n'
    '[[groups]]\ngrow = { instances = 4, at_s = 10, how = "static" }\n'
)

ADDED = '[[load]]\nkind = "add-members"\ninstances = 4\ngroups = "group"'
"""A load for `BATCH_JOIN`."""

ALL_KEYS = """
duration_s = 200
seed = 3
measure_from_s = 30
[topics]
orders = 12
payments = 6
[cluster]
brokers = 5
first_node_id = 0
proposals = ["batch-join"]
config = { "offsets.topic.num.partitions" = 10, "group.initial.rebalance.delay.ms" = 0 }
load_ms = 200
[[groups]]
name = "shops"
pattern = "shop-{}-eu"
count = 20
hot_partitions = [9]
hot_share = 0.5
members = { zipf = 1.2, max = 50 }
topics = ["orders"]
protocol = "classic"
assignor = "sticky"
session_timeout_ms = 10_000
rebalance_timeout_ms = 60_000
timeout_jitter = 0.05
heartbeat_interval_ms = 1_000
commit_interval_ms = 0
jitter = 0.2
consume_per_s = 2.5
static = 0.5
arrival = { at_s = 1, bursts = 3, every_s = 2, by = "group" }
leave = { share = 0.1, at_s = [10, 20], return_after_s = 3 }
crash = { share = 0.1, at_s = 10 }
pause = { share = 0.1, at_s = 10, for_s = [1, 12] }
slow = { share = 0.1, at_s = 10, for_s = 70 }
zombie = { share = 0.1, at_s = 10, for_s = 2 }
restart = { at_s = 90, every_s = 0.5, return_after_s = 2 }
grow = { instances = 4, at_s = 100, every_s = 0.1, how = "static" }
[[groups]]
name = "tills"
members = { histogram = { "1" = 3, "5" = 1 } }
topics = ["orders"]
transactional = true
transaction = { to = "payments", records = 20, timeout_ms = 5_000, abort = 0.1, crash = 0.2, return_after_s = [0, 30] }
[[load]]
kind = "add-members"
groups = "shops"
instances = 4
at_s = 90
[[load]]
kind = "fetch-offsets"
batch = 100
rate_per_s = 50
at_s = 5
for_s = 20
[[event]]
at_s = 30
do = "broker.stop"
node_id = 1
[[event]]
at_s = 40
do = "broker.start"
node_id = 1
load_ms = 5
[[event]]
at_s = 50
do = "clear_faults"
[pacing]
rate_per_s = 100
speed = 10
[[expect]]
metric = "generations"
groups = "shops"
comparison = "<="
value = 25
per = "group"
[[expect]]
metric = "requests"
api = "OffsetFetch"
source = "load"
comparison = ">"
value = 0
[[expect]]
metric = "errors.UNKNOWN_MEMBER_ID"
comparison = ">"
value = 0
[promises]
check = ["answered", "one-owner"]
require = ["one-owner"]
"""

INVALID: dict[str, dict[str, str]] = {
    "file": {
        "topics = { orders = 1 }": "2 errors\n  duration_s is missing: expected a number > 0 and <= 1000000\n  "
        "groups is missing: expected a list",
        "duration_s = 3\n[[groups]]": "topics is missing: expected a table",
        "duration_s = 3\nmeasure_from_s = 3\ntopics = { orders = 1 }\n[[groups]]": (
            "measure_from_s=3.0: expected a number < duration_s (3)"
        ),
        "duration_s = 3\nmeasure_from_s = -1\ntopics = { orders = 1 }\n[[groups]]": (
            "measure_from_s=-1: expected a number >= 0 or none"
        ),
        WITHOUT_GROUPS: "groups is missing: expected a list",
        f"{WITHOUT_GROUPS}groups = []": "groups=[]: expected at least one [[groups]] table",
        f"{WITHOUT_GROUPS}[groups]\ncount = 5": "groups={'count': 5}: expected a list",
        f"{WITHOUT_GROUPS}x = ": "expected TOML: Invalid value (at line 3, column 5)",
        f"{WITHOUT_GROUPS}speed = 3\n[[groups]]": "speed=3: unknown field; expected one of duration_s, topics, seed, "
        "measure_from_s, "
        "cluster, groups, load, event, pacing, expect, promises; did you mean 'seed'?",
        "duration_s = 0\ntopics = { orders = 1 }\n[[groups]]": "duration_s=0: expected a number > 0 and <= 1000000",
        "duration_s = inf\ntopics = { orders = 1 }\n[[groups]]": "duration_s=inf: expected a finite number",
        'duration_s = nan\ntopics = { orders = 1 }\n[[event]]\nat_s = 1\ndo = "reset"\n[[groups]]': (
            "duration_s=nan: expected a finite number"
        ),
        "duration_s = 3\ntopics = {}\n[[groups]]": (
            "topics={}: expected at least one topic with its number of partitions"
        ),
        'duration_s = 3\ntopics = { "or ders" = 1 }\n[[groups]]': (
            "topics='or ders': expected a name of 1 to 249 characters (a-z, A-Z, 0-9, '.', '_', '-') "
            "other than '.' and '..', and other than __consumer_offsets, __transaction_state"
        ),
        "duration_s = 3\ntopics = { __consumer_offsets = 1 }\n[[groups]]": (
            "topics='__consumer_offsets': expected a name of 1 to 249 characters (a-z, A-Z, 0-9, '.', '_', '-') "
            "other than '.' and '..', and other than __consumer_offsets, __transaction_state"
        ),
        "duration_s = 3\ntopics = { orders = 200_000 }\n[[groups]]": "topics.orders=200000: expected an integer "
        "from 1 to 100000",
        "duration_s = 1e300\ntopics = { orders = 1 }\n[[groups]]": "duration_s=1e+300: expected a number > 0 and "
        "<= 1000000",
        "duration_s = 3\ntopics = { orders = 0 }\n[[groups]]": "topics.orders=0: expected an integer from 1 to 100000",
        f'{WITHOUT_GROUPS}seed = "x"\n[[groups]]': "seed='x': expected an integer or none",
    },
    "cluster": {
        f"{MINIMAL}[cluster]\nbrokers = 0": "cluster.brokers=0: expected an integer from 1 to 100",
        f'{MINIMAL}[cluster]\nas_version = "2.99"': "cluster.as_version='2.99': expected one of 0.10.0, 0.10.1, "
        "0.10.2, 0.11, 1.0, 1.1, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 3.0, 3.1, 3.2, 3.3, ",
        f'{MINIMAL}[cluster]\nas_version = "2.8"\nproposals = ["batch-join"]': (
            "cluster.proposals=['batch-join']: expected no proposals with as_version 2.8"
        ),
        f'{MINIMAL}[cluster]\nproposals = ["x"]': "cluster.proposals[0]='x': expected one of batch-join",
        f"{MINIMAL}[cluster.config]\n'group.max.sise' = 3": "cluster.config.group.max.sise=3: unknown setting; "
        "expected one of add.partitions.to.txn.retry.backoff.max.ms, add.partitions.to.txn.retry.backoff.ms, ",
        f"{MINIMAL}[cluster]\nload_ms = -1": "cluster.load_ms=-1: expected an integer >= 0",
    },
    "groups: names and counts": {
        f"{MINIMAL}cuont = 5": "groups[0].cuont=5: unknown field; expected one of name, pattern, count, from_file, "
        "from_column, hot_partitions, hot_share, members, topics, protocol, ",
        f'{MINIMAL}count = "many"': "groups[0].count='many': expected an integer from 1 to 100000000 or none",
        f"{MINIMAL}count = 100_000_001": "groups[0].count=100000001: expected an integer from 1 to 100000000 or none",
        f'{MINIMAL}pattern = ""': "groups[0].pattern='': expected a string of 1 or more characters or none",
        f"{MINIMAL}count = 0": "groups[0].count=0: expected an integer from 1 to 100000000 or none",
        f'{MINIMAL}name = ""': "groups[0].name='': expected a string of 1 or more characters",
        f'{MINIMAL}count = 2\npattern = "g"': (
            "groups[0].pattern='g': expected exactly one {}, for the number of the group"
        ),
        f'{MINIMAL}pattern = "{{}}{{}}"': (
            "groups[0].pattern='{}{}': expected exactly one {}, for the number of the group"
        ),
        f"{MINIMAL}[[groups]]": "groups[1].name='group': expected a value that no other population has",
        f'{MINIMAL}[[groups]]\nname = "x"\npattern = "group-{{}}"': (
            "groups[1].pattern='group-{}': expected a value that no other population has"
        ),
        f'{MINIMAL}from_file = "g.csv"\n[[groups]]\nname = "x"\nfrom_file = "g.csv"': (
            "groups[1].from_file='g.csv': expected a value that no other population has"
        ),
        f"{MINIMAL}hot_partitions = [-1]": "groups[0].hot_partitions[0]=-1: expected an integer >= 0",
        f"{MINIMAL}hot_partitions = [50]": "groups[0].hot_partitions[0]=50: expected an integer < 50, the number "
        "of partitions of __consumer_offsets",
        f"{MINIMAL}hot_share = 1.5": "groups[0].hot_share=1.5: expected a number from 0 to 1",
        f'{MINIMAL}from_file = "g.csv"\npattern = "x-{{}}"': (
            "groups[0].pattern='x-{}': expected none with from_file, which contains the complete names"
        ),
        f'{MINIMAL}from_file = "g.csv"\nhot_partitions = [1]': (
            "groups[0].hot_partitions=[1]: expected none with from_file, which contains the complete names"
        ),
        f"{MINIMAL}hot_share = 0.5": "groups[0].hot_share=0.5: expected no share without hot_partitions",
        f'{MINIMAL}from_column = "x"': "groups[0].from_column='x': expected no column without from_file",
        f'{MINIMAL}name = "a"\npattern = "x-{{}}"\n[[groups]]\nname = "b"\npattern = "x-1{{}}"': (
            "groups[1].pattern='x-1{}': expected a pattern that never gives a name of 'x-{}' of population 'a'"
        ),
    },
    "groups: members": {
        f"{MINIMAL}members = 0": "groups[0].members=0: expected an integer from 1 to 10000 or a table",
        f'{MINIMAL}members = "x"': "groups[0].members='x': expected an integer from 1 to 10000 or a table",
        f"{MINIMAL}members = {{}}": "groups[0].members.uniform is missing: expected one of uniform, zipf, histogram",
        f"{MINIMAL}members = {{ even = 4 }}": "groups[0].members.even=4: unknown field; expected one of uniform, "
        "zipf, max, histogram",
        f"{MINIMAL}members = {{ uniform = [4] }}": "groups[0].members.uniform=[4]: expected a list of 2 or none",
        f"{MINIMAL}members = {{ uniform = [0, 4] }}": (
            "groups[0].members.uniform[0]=0: expected an integer from 1 to 10000"
        ),
        f"{MINIMAL}members = {{ uniform = [4, 20_000] }}": "groups[0].members.uniform[1]=20000: expected an "
        "integer from 1 to 10000",
        f"{MINIMAL}members = {{ uniform = [4, 1] }}": "groups[0].members.uniform=[4, 1]: expected [minimum, maximum]",
        f"{MINIMAL}members = {{ zipf = 1.2 }}": "groups[0].members.max is missing: expected an integer >= 1 with zipf",
        f"{MINIMAL}members = {{ zipf = 0, max = 4 }}": "groups[0].members.zipf=0: expected a number > 0 or none",
        f"{MINIMAL}members = {{ zipf = 1.2, max = 20_000 }}": "groups[0].members.max=20000: expected an integer "
        "from 1 to 10000 or none",
        f"{MINIMAL}members = {{ uniform = [1, 2], zipf = 1, max = 3 }}": (
            "groups[0].members.zipf=1.0: expected none with uniform: only one of uniform, zipf, histogram"
        ),
        f"{MINIMAL}members = {{ histogram = {{ x = 1 }} }}": (
            "groups[0].members.histogram='x': expected sizes from 1 to 10000"
        ),
        f"{MINIMAL}members = {{ histogram = {{ 4 = -1 }} }}": (
            "groups[0].members.histogram.4=-1: expected a number >= 0"
        ),
        f"{MINIMAL}members = {{ histogram = {{ 4 = 0 }} }}": (
            "groups[0].members.histogram={'4': 0.0}: expected at least one weight > 0"
        ),
    },
    "groups: transactions": {
        f"{MINIMAL}transactional = true": "groups[0].transaction is missing: expected a table with transactional, such "
        "as { to = 'payments', records = 10 }",
        f'{MINIMAL}transactional = true\ntransaction = {{ to = "x" }}': (
            "groups[0].transaction.records is missing: expected an integer >= 1"
        ),
        f"{MINIMAL}transactional = true\ntransaction = {{ records = 3 }}": (
            "groups[0].transaction.to is missing: expected a string of 1 or more characters"
        ),
        f'{WITH_TARGET}transaction = {{ to = "payments", records = 3 }}': (
            "groups[0].transactional=False: expected true with transaction"
        ),
        f'{TRANSACTIONAL}transaction = {{ to = "payments", records = 0 }}': (
            "groups[0].transaction.records=0: expected an integer >= 1"
        ),
        f'{TRANSACTIONAL}transaction = {{ to = "payment", records = 3 }}': (
            "groups[0].transaction.to='payment': expected one of orders, payments; did you mean 'payments'?"
        ),
        f'{TRANSACTIONAL}topics = ["payments"]\ntransaction = {{ to = "payments", records = 3 }}': (
            "groups[0].transaction.to='payments': expected a topic that the members do not subscribe to"
        ),
        f'{MINIMAL}transactional = true\ntransaction = {{ to = "orders", records = 3 }}': (
            "groups[0].transaction.to='orders': expected a topic that the members do not subscribe to"
        ),
        f'{TRANSACTIONAL}transaction = {{ to = "payments", records = 3, timeout_ms = 900_001 }}': (
            "groups[0].transaction.timeout_ms=900001: expected at most 900000, the limit of the cluster "
            "(transaction.max.timeout.ms)"
        ),
        f'{TRANSACTIONAL}transaction = {{ to = "payments", records = 3, abort = 0.7, crash = 0.5 }}': (
            "groups[0].transaction.abort=0.7: expected a share of at most 1 together with crash (0.5)"
        ),
        f'{TRANSACTIONAL}transaction = {{ to = "payments", records = 3, return_after_s = [5, 1] }}': (
            "groups[0].transaction.return_after_s=[5.0, 1.0]: expected seconds >= 0, or [minimum, maximum]"
        ),
        f'{TRANSACTIONAL}commit_interval_ms = 0\ntransaction = {{ to = "payments", records = 3 }}': (
            "groups[0].commit_interval_ms=0: expected an integer >= 1 with transactional: the interval between "
            "transactions"
        ),
        f'{TRANSACTIONAL}transaction = {{ to = "payments", records = 3 }}\n[cluster]\nas_version = "0.10.2"': (
            "groups[0].transactional=True: expected no transactions in a cluster that emulates 0.10.2; they need 0.11 "
            "or newer"
        ),
    },
    "groups: topics, timeouts and intervals": {
        f'{MINIMAL}topics = ["x"]': "groups[0].topics[0]='x': expected one of orders",
        f'{MINIMAL}assignor = "uniform"': "groups[0].assignor='uniform': expected one of range, roundrobin, "
        "sticky, cooperative-sticky",
        f"{MINIMAL}session_timeout_ms = 6000\nheartbeat_interval_ms = 6000": (
            "groups[0].heartbeat_interval_ms=6000: expected less than session_timeout_ms "
            "(6000), jitter and timeout_jitter included"
        ),
        f"{MINIMAL}session_timeout_ms = 6000\nheartbeat_interval_ms = 5500": (
            "groups[0].heartbeat_interval_ms=5500: expected less than session_timeout_ms "
            "(6000), jitter and timeout_jitter included"
        ),
        f"{MINIMAL}session_timeout_ms = 5000": (
            "groups[0].session_timeout_ms=5000: expected 6000 to 1800000, timeout_jitter "
            "included: the limits of the cluster (group.min.session.timeout.ms, "
            "group.max.session.timeout.ms)"
        ),
        f"{MINIMAL}session_timeout_ms = 6000\ntimeout_jitter = 0.1": (
            "groups[0].session_timeout_ms=6000: expected 6000 to 1800000, timeout_jitter "
            "included: the limits of the cluster (group.min.session.timeout.ms, "
            "group.max.session.timeout.ms)"
        ),
        f"{MINIMAL}rebalance_timeout_ms = 0": (
            "groups[0].rebalance_timeout_ms=0: expected an integer from 1 to 2147483647"
        ),
        f"{MINIMAL}commit_interval_ms = -1": (
            "groups[0].commit_interval_ms=-1: expected an integer from 0 to 2147483647"
        ),
        f"{MINIMAL}jitter = 1": "groups[0].jitter=1: expected a number >= 0 and < 1",
        f"{MINIMAL}consume_per_s = -1": "groups[0].consume_per_s=-1: expected a number >= 0",
        f"{MINIMAL}static = 2": "groups[0].static=2: expected a number from 0 to 1",
        f'{MINIMAL}static = 0.5\n[cluster]\nas_version = "2.2"': (
            "groups[0].static=0.5: expected no static members with cluster.as_version 2.2; they require 2.3 or later"
        ),
        f'{MINIMAL}session_timeout_ms = 600_000\n[cluster]\nas_version = "2.2"': (
            "groups[0].session_timeout_ms=600000: expected 6000 to 300000, timeout_jitter "
            "included: the limits of the cluster (group.min.session.timeout.ms, "
            "group.max.session.timeout.ms)"
        ),
    },
    "groups: protocols": {
        f'{MINIMAL}protocol = "share"': "groups[0].protocol='share': expected one of classic, consumer",
        f'{CONSUMERS}assignor = "range"': (
            "groups[0].assignor='range': expected none with protocol = 'consumer': the brokers decide it "
            "(group.consumer.assignors)"
        ),
        f"{CONSUMERS}session_timeout_ms = 45_000": (
            "groups[0].session_timeout_ms=45000: expected none with protocol = 'consumer': the brokers decide it "
            "(group.consumer.session.timeout.ms)"
        ),
        f"{CONSUMERS}heartbeat_interval_ms = 3_000": (
            "groups[0].heartbeat_interval_ms=3000: expected none with protocol = 'consumer': the brokers decide it "
            "(group.consumer.heartbeat.interval.ms)"
        ),
        f"{CONSUMERS}[pacing]\nrate_per_s = 5": (
            "pacing.rate_per_s=5.0: expected none with members of the protocol 'consumer', whose heartbeat interval "
            "comes from the broker"
        ),
        f"{CONSUMERS}[pacing]\nclosed_loop = true": (
            "pacing.closed_loop=True: expected none with members of the protocol 'consumer', whose heartbeat interval "
            "comes from the broker"
        ),
        f'{CONSUMERS}[cluster]\nas_version = "3.9"': (
            "groups[0].protocol='consumer': expected no members of the protocol 'consumer' with cluster.as_version "
            "3.9; they need 4.0 or later"
        ),
        f'{MINIMAL}migrate_at_s = 9\n[cluster]\nconfig = {{ "group.coordinator.rebalance.protocols" = "classic" }}': (
            "groups[0].migrate_at_s=9.0: expected no migration to 'consumer' in a cluster with "
            "group.coordinator.rebalance.protocols = 'classic'"
        ),
        f'{MINIMAL}migrate_at_s = 9\n[cluster]\nconfig = {{ "group.consumer.migration.policy" = "downgrade" }}': (
            "groups[0].migrate_at_s=9.0: expected none in a cluster with group.consumer.migration.policy = "
            "'downgrade'; it needs 'upgrade' or 'bidirectional'"
        ),
        f"{MINIMAL}migrate_at_s = [5, 3]": (
            "groups[0].migrate_at_s=[5.0, 3.0]: expected seconds >= 0, or [minimum, maximum]"
        ),
        f"{MINIMAL}migrate_at_s = 9\nrestart = {{ at_s = 9 }}": (
            "groups[0].restart={'at_s': 9.0, 'every_s': 1.0, 'return_after_s': 1.0}: expected none with migrate_at_s, "
            "which restarts all members of each group"
        ),
        f"{MINIMAL}members = 5\nmigrate_at_s = 86": (
            "groups[0].migrate_at_s ends at 91 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}arrival.at_s = 9\nmigrate_at_s = [8, 9]": (
            "groups[0].migrate_at_s=[8.0, 9.0]: expected a time >= 9, when all members have started"
        ),
    },
    "groups: arrival": {
        f"{MINIMAL}arrival = {{ at_s = -1 }}": "groups[0].arrival.at_s=-1: expected a number >= 0",
        f"{MINIMAL}arrival = {{ ramp_s = 0 }}": "groups[0].arrival.ramp_s=0: expected a number > 0 or none",
        f"{MINIMAL}arrival = {{ ramp_s = 90 }}": (
            "groups[0].arrival ends at 90 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}count = 100\narrival = {{ poisson_per_s = 1 }}": (
            "groups[0].arrival ends at 100 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}arrival = {{ bursts = 2 }}": (
            "groups[0].arrival.every_s is missing: expected a number > 0 with bursts"
        ),
        f"{MINIMAL}arrival = {{ bursts = 10, every_s = 10 }}": (
            "groups[0].arrival ends at 90 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}arrival = {{ ramp_s = 1, poisson_per_s = 1 }}": (
            "groups[0].arrival.poisson_per_s=1.0: expected none with ramp_s: only one of ramp_s, poisson_per_s, bursts"
        ),
        f'{MINIMAL}arrival = {{ by = "topic" }}': "groups[0].arrival.by='topic': expected one of member, group",
    },
    "groups: behaviors": {
        f"{MINIMAL}grow = {{ instances = 20_000, at_s = 3 }}": "groups[0].grow.instances=20000: expected an "
        "integer from 1 to 10000",
        f"{MINIMAL}leave = {{ at_s = 5 }}": "groups[0].leave.share is missing: expected a number from 0 to 1",
        f"{MINIMAL}leave = {{ share = 0.5 }}": "groups[0].leave.at_s is missing: expected a number or a list of 2",
        f"{MINIMAL}leave = {{ share = 1.5, at_s = 5 }}": "groups[0].leave.share=1.5: expected a number from 0 to 1",
        f"{MINIMAL}leave = {{ share = 1, at_s = 5, for_s = 5 }}": "groups[0].leave.for_s=5: unknown field; "
        "expected one of share, at_s, return_after_s",
        f'{MINIMAL}crash = {{ share = 1, at_s = "x" }}': "groups[0].crash.at_s='x': expected a number or a list of 2",
        f"{MINIMAL}crash = {{ share = 1, at_s = -5 }}": (
            "groups[0].crash.at_s=-5.0: expected seconds >= 0, or [minimum, maximum]"
        ),
        f"{MINIMAL}crash = {{ share = 1, at_s = [5, 4] }}": (
            "groups[0].crash.at_s=[5.0, 4.0]: expected seconds >= 0, or [minimum, maximum]"
        ),
        f"{MINIMAL}crash = {{ share = 1, at_s = [5] }}": "groups[0].crash.at_s=[5]: expected a number or a list of 2",
        f"{MINIMAL}crash = {{ share = 1, at_s = 91 }}": (
            "groups[0].crash ends at 91 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}crash = {{ share = 1, at_s = 80, return_after_s = [1, 20] }}": (
            "groups[0].crash ends at 100 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}arrival.ramp_s = 9\npause = {{ share = 1, at_s = 5, for_s = 1 }}": (
            "groups[0].pause.at_s=5.0: expected a time >= 9, when all members have started"
        ),
        f"{MINIMAL}pause = {{ share = 1, at_s = 5 }}": (
            "groups[0].pause.for_s is missing: expected a number or a list of 2"
        ),
        f"{MINIMAL}slow = {{ share = 1, at_s = 5, for_s = -1 }}": (
            "groups[0].slow.for_s=-1.0: expected seconds >= 0, or [minimum, maximum]"
        ),
        f"{MINIMAL}zombie = {{ share = 1, at_s = 45, for_s = 1 }}": (
            "groups[0].zombie ends at 91 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}leave = {{ share = 0.6, at_s = 5 }}\ncrash = {{ share = 0.6, at_s = 5 }}": (
            "groups[0].leave.share=0.6: expected shares with a sum of at most 1, not leave 0.6 + crash 0.6"
        ),
        f"{MINIMAL}restart = {{ at_s = 5, every_s = -1 }}": (
            "groups[0].restart.every_s=-1.0: expected seconds >= 0, or [minimum, maximum]"
        ),
        f"{MINIMAL}members = 100\nrestart = {{ at_s = 5, return_after_s = 0 }}": (
            "groups[0].restart ends at 104 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f"{MINIMAL}grow = {{ instances = 0, at_s = 5 }}": (
            "groups[0].grow.instances=0: expected an integer from 1 to 10000"
        ),
        f"{MINIMAL}grow = {{ instances = 100, at_s = 5, every_s = 1 }}": (
            "groups[0].grow ends at 104 s: expected an end before 90 s, when the groups begin to leave"
        ),
        f'{MINIMAL}grow = {{ instances = 1, at_s = 5, how = "batch" }}': "groups[0].grow.how='batch': expected one "
        "of dynamic, static",
    },
    "load": {
        f'{MINIMAL}[[load]]\nkind = "x"': "load[0].kind='x': expected one of find-coordinators, fetch-offsets, "
        "describe-groups, list-groups, add-members",
        f'{MINIMAL}[[load]]\nkind = "list-groups"\nbatch = 0': "load[0].batch=0: expected an integer >= 1",
        f'{MINIMAL}[[load]]\nkind = "list-groups"\nrate_per_s = 0': (
            "load[0].rate_per_s=0: expected a number > 0 or none"
        ),
        f'{MINIMAL}[[load]]\nkind = "list-groups"\nat_s = 100': (
            "load[0].at_s=100.0: expected a number < duration_s (100)"
        ),
        f'{MINIMAL}[[load]]\nkind = "list-groups"\nat_s = 60\nfor_s = 50': (
            "load[0].for_s=50.0: expected an end by duration_s (100), not at 110"
        ),
        f'{MINIMAL}[[load]]\nkind = "fetch-offsets"\ngroups = "x"': "load[0].groups='x': expected one of group",
        f'{MINIMAL}[[load]]\nkind = "fetch-offsets"\ninstances = 3': (
            "load[0].instances=3: expected no instances with fetch-offsets, only with add-members"
        ),
        f'{MINIMAL}[[load]]\nkind = "add-members"': (
            "2 errors\n  load[0].instances is missing: expected an integer >= 1 with "
            "add-members\n  load[0].groups is missing: expected the population whose members"
            " are registered"
        ),
        f'{MINIMAL}[[load]]\nkind = "add-members"\ninstances = 3': (
            "load[0].groups is missing: expected the population whose members are registered"
        ),
        f'{MINIMAL}[[load]]\nkind = "add-members"\ninstances = 3\ngroups = "group"': (
            "2 errors\n  load[0].instances=3: expected at most `grow.instances` of "
            "population 'group', whose `grow` must have how = 'static' and at_s >= 0\n  "
            "load[0].kind='add-members': expected 'batch-join' in cluster.proposals"
        ),
        f'{BATCH_JOIN}[[load]]\nkind = "add-members"\ninstances = 5\ngroups = "group"': (
            "load[0].instances=5: expected at most `grow.instances` of population "
            "'group', whose `grow` must have how = 'static' and at_s >= 0"
        ),
        BATCH_JOIN.replace('["batch-join"]', "[]")
        + '[[load]]\nkind = "add-members"\ninstances = 4\ngroups = "group"': (
            "load[0].kind='add-members': expected 'batch-join' in cluster.proposals"
        ),
    },
    "event": {
        f'{MINIMAL}[[event]]\ndo = "clear_faults"': "event[0].at_s is missing: expected a number >= 0 and < 100",
        f'{MINIMAL}[[event]]\nat_s = 100\ndo = "reset"': "event[0].at_s=100: expected a number >= 0 and < 100",
        f'{MINIMAL}[[event]]\nat_s = 1\ndo = "broker.stop"': "event[0].node_id is missing: expected an integer",
        f"event = [5]\n{MINIMAL}": "event[0]=5: expected a table",
    },
    "pacing": {
        f"{MINIMAL}[pacing]\nrate_per_s = 200": (
            "pacing.rate_per_s=200.0: expected a number <= 100: 100 per second and member"
        ),
        f"{MINIMAL}[pacing]\nspeed = 0": "pacing.speed=0: expected a number > 0 and <= 1000",
        f"{MINIMAL}[pacing]\nclosed_loop = 1": "pacing.closed_loop=1: expected true or false",
        f"{MINIMAL}[pacing]\nrate_per_s = -3": "pacing.rate_per_s=-3: expected a number > 0 or none",
        f"{MINIMAL}[pacing]\nclosed_loop = true\nrate_per_s = 3": (
            "pacing.rate_per_s=3.0: expected no rate with closed_loop"
        ),
        f"{MINIMAL}count = 90\n[pacing]\nrate_per_s = 2": (
            "pacing.rate_per_s=2.0: expected a higher rate: with an interval of 45000 ms, "
            "heartbeats may be later than the session timeout of groups[0] (45000 ms)"
        ),
        f"{MINIMAL}count = 80\ntimeout_jitter = 0.1\n[pacing]\nrate_per_s = 2": (
            "pacing.rate_per_s=2.0: expected a higher rate: with an interval of 40000 ms, "
            "heartbeats may be later than the session timeout of groups[0] (40500 ms)"
        ),
    },
    "expect and promises": {
        f"{MINIMAL}[[expect]]\nwhat = 5": "4 errors\n  expect[0].what=5: unknown field; expected one of metric, "
        "comparison, value, api, ",
        MINIMAL + EXPECT.replace('"<"', '"=<"'): "expect[0].comparison='=<': expected one of <, <=, ==, >=, >; did "
        "you mean '<'?",
        MINIMAL + EXPECT + EXPECT.replace("5", "'5'"): "expect[1].value='5': expected a number",
        MINIMAL + EXPECT.replace("value = 5\n", ""): "expect[0].value is missing: expected a number",
        MINIMAL + EXPECT.replace("p99_ms", "p98_ms"): "expect[0].metric='p98_ms': expected one of requests, "
        "requests_per_s, p50_ms, p99_ms, p99_9_ms, max_ms, undelayed_p50_ms, undelayed_p99_ms, undelayed_p99_9_ms, "
        "undelayed_max_ms, ",
        MINIMAL + EXPECT.replace("p99_ms", "errors.NOT"): "expect[0].metric='errors.NOT': expected one of "
        "errors.UNKNOWN_SERVER_ERROR, errors.NONE, errors.OFFSET_OUT_OF_RANGE, errors.CORRUPT_MESSAGE, ",
        MINIMAL + EXPECT.replace("p99_ms", "rebalances") + 'api = "Heartbeat"': (
            "expect[0].api='Heartbeat': expected no api with metric 'rebalances'; it is allowed with requests, "
            "unexpected_errors, errors.<NAME>, lost, unanswered, cut_off, requests_per_s, p50_ms, p99_ms, p99_9_ms, "
            "max_ms, undelayed_p50_ms, undelayed_p99_ms, undelayed_p99_9_ms, undelayed_max_ms, groups_per_request"
        ),
        f'{MINIMAL}{EXPECT}api = "Fetch"': "expect[0].api='Fetch': expected one of FindCoordinator, Metadata, "
        "JoinGroup, SyncGroup, Heartbeat, ConsumerGroupHeartbeat, OffsetCommit, ",
        f'{MINIMAL}{EXPECT}groups = "group"': (
            "expect[0].groups='group': expected no groups with metric 'p99_ms'; it is "
            "allowed with generations, members_joined, unassigned_member_s, unassigned_partition_s, rebalance_max_ms"
        ),
        f'{MINIMAL}{EXPECT}source = "lode"': "expect[0].source='lode': expected one of members, load or none; did you "
        "mean 'load'?",
        f'{MINIMAL}{EXPECT}source = "load"': "expect[0].source='load': expected 'members', because there is no "
        "[[load]] table",
        MINIMAL + EXPECT.replace("p99_ms", "generations") + 'source = "members"': (
            "expect[0].source='members': expected no source with metric 'generations'; it is allowed with requests, "
        ),
        f'{MINIMAL}{EXPECT}per = "group"': "expect[0].per='group': expected no per with metric 'p99_ms'; it is allowed "
        "with requests, unexpected_errors, errors.<NAME>, lost, unanswered, cut_off, requests_per_s, generations, ",
        MINIMAL + EXPECT.replace("p99_ms", "groups_per_request"): "expect[0].api is missing: expected one of "
        "FindCoordinator, OffsetFetch, DescribeGroups with metric 'groups_per_request'",
        MINIMAL + EXPECT.replace("p99_ms", "groups_per_request") + 'api = "Heartbeat"': "expect[0].api='Heartbeat': "
        "expected one of FindCoordinator, OffsetFetch, DescribeGroups with metric 'groups_per_request'",
        MINIMAL + EXPECT.replace("p99_ms", "errors.<NAME>"): "expect[0].metric='errors.<NAME>': expected one of "
        "errors.UNKNOWN_SERVER_ERROR, errors.NONE, ",
        MINIMAL + EXPECT.replace("p99_ms", "generations") + 'groups = "x"': (
            "expect[0].groups='x': expected one of group"
        ),
        f'{MINIMAL}[promises]\ncheck = ["x"]': "promises.check[0]='x': expected one of one-owner, covered, "
        "one-leader, generations-rise, commits-kept, silent-out, beating-stays, stale-refused, ",
        f'{MINIMAL}[promises]\nrequire = ["one-owner", "silent"]': "promises.require[1]='silent': expected one of "
        "one-owner, covered, one-leader, generations-rise, commits-kept, silent-out, beating-stays, stale-refused, ",
        f'{MINIMAL}[promises]\ncheck = ["covered"]\nrequire = ["one-owner"]': (
            "promises.require[0]='one-owner': expected a promise in check: covered"
        ),
        f'{MINIMAL}[promises]\ncheck = "all"': "promises.check='all': expected a list or none",
    },
}
