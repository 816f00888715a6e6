"""Random histories: the same requests to Apache Kafka and to the fake cluster, each answer compared field by field.

1. `drawing.py` draws a history with Hypothesis: steps of a few clients, correct ones, and ones with a wrong field.
2. `history.py` is a history as text. A step names what a client got before (`$A.member_id`), so that it means the same
   on both clusters.
3. `sides.py` sends requests: to the core of the fake cluster in memory, and to Kafka over sockets.
4. `answers.py` compares two answers. Ids that a cluster chooses are equal if they are always paired.
5. `play.py` plays a history on one side or on both.
6. `run.py` is the command: many histories at once, differences shrunk and counted by kind.

    python -m tests.histories.run --release 4.2 --seconds 30 --seed 1
    python -m tests.histories.run --fake --seconds 10       without Kafka: nothing raises, closes or never ends
    python -m tests.histories.run --play FILE               a history as text, on Kafka and on the fake cluster
"""
