"""Random histories: the same requests to Apache Kafka and to the fake cluster, each answer compared field by field.

1. `drawing.py` draws a history with Hypothesis: steps of a few clients, correct ones, and ones with a wrong field.
2. `history.py` is a history as text. A step refers to earlier answers (`$A.member_id`), so one text fits both clusters.
3. `sides.py` sends requests: to the core of the fake cluster in memory, and to Kafka over sockets.
4. `answers.py` compares two answers. Ids that a cluster chooses match if one id is always opposite the same other id.
5. `play.py` plays a history on one side or on both.
6. `run.py` is the command: it plays many histories at once, counts differences by kind (the field and the errors), and
   shortens the first history of each kind.

    python -m tests.histories.run --release 4.4 --seconds 30 --seed 1
    python -m tests.histories.run --fake --seconds 10       without Kafka: no request may raise an error or hang
    python -m tests.histories.run --play FILE               a history as text, on Kafka and on the fake cluster
    python -m tests.histories.run --keep FILE               the same, and adds Kafka's answers to the file
"""
