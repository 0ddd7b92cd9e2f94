"""Models served inside this process: no workers to start, none that could die. For tests, notebooks and small tools."""

import asyncio
import warnings

from bertkit.errors import LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.serve.describing import describe
from bertkit.serve.dispatch import Dispatcher
from bertkit.serve.frames import LENGTHS, Array, Message, from_frame
from bertkit.serve.metrics import Metrics
from bertkit.serve.models import Facts, Models, ServedModel
from bertkit.serve.service import Service
from bertkit.serve.settings import ServeSettings
from bertkit.serve.worker import answer


class LocalLink:
    """Batches in a thread, one at a time, through the same frames as a process would take."""

    def __init__(self, berts: dict[str, Bert]) -> None:
        self.berts = berts
        self.is_up = True
        self._turn = asyncio.Lock()

    async def call(self, message: Message) -> tuple[Message, list[Array]]:
        """One batch."""
        async with self._turn:
            return await asyncio.to_thread(self._answer, {**message, "id": 0})

    def _answer(self, message: Message) -> tuple[Message, list[Array]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LongTextWarning)  # told in the answers instead
            frame = answer(self.berts, message)
        _, head_size = LENGTHS.unpack_from(frame)
        return from_frame(head_size, frame[LENGTHS.size :])


def local_service(berts: dict[str, Bert], settings: ServeSettings | None = None) -> Service:
    """These models behind one queue; hand it to `create_app`."""
    chosen, metrics = settings or ServeSettings(), Metrics()
    facts = {name: Facts.read(describe(bert, None)) for name, bert in berts.items()}
    budget = chosen.batch_tokens or min(fact.batch_tokens for fact in facts.values())
    dispatcher = Dispatcher(budget, chosen.deadline, metrics)
    dispatcher.add(LocalLink(berts))
    models = Models(ServedModel(name, facts[name], bert.tokenizer, dispatcher) for name, bert in berts.items())
    return Service(models, chosen, metrics)
