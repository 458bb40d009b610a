"""What the areas share that ask both servers by connections which stay open."""

from differential import models
from differential.answers import DIED, Answer
from differential.servers import NAMES, Pair


class ConnectedArea:
    """Both servers with the models, and a connection to each: what `connect` makes, and `answers` asks."""

    served = models.MODELS
    most_tries = 600
    must_come_again = 0

    def __enter__(self):
        self._pair = Pair(self.served).__enter__()
        self._connect()
        return self

    def __exit__(self, *failure):
        self._disconnect()
        self._pair.__exit__(*failure)

    def _connect(self):
        self._connections = [self.connect(server) for server in (self._pair.triton, self._pair.nereid)]

    def _disconnect(self):
        for connection in self._connections:
            connection.close()

    def ask(self, case):
        """The answers of both."""
        answers = [self.answers(connection, case) for connection in self._connections]
        dead = self._pair.revive(answers)
        if dead:
            self._disconnect()
            self._connect()
        return [[Answer(DIED)] if server in dead else given for server, given in zip(NAMES, answers, strict=True)]
