"""What programs rely on in Anthropic's client beyond plain calls: errors by class, timeouts, raw responses, counts, other
routes, async clients, streams that end early. All of it must work with and without the proxy.

The header `x-act` makes the stand-in upstream misbehave.
"""
import asyncio
import os

import anthropic
import httpx2
from anthropic import Anthropic, AsyncAnthropic

client = Anthropic(max_retries=0)
hello = [{"role": "user", "content": "Which berths are free?"}]
plain = dict(model="stand-in", max_tokens=100, messages=hello)


def create(act=None, on=client, **more):
    headers = {"x-act": act} if act else {}
    return on.messages.create(**plain, extra_headers=headers, **more)


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors():
    error = fails(anthropic.AuthenticationError, lambda: create(on=client.with_options(api_key="sk-wrong")))
    assert error.body["error"]["type"] == "authentication_error", error
    error = fails(anthropic.RateLimitError, lambda: create("busy"))
    assert error.response.headers["retry-after"] == "7", error
    assert fails(anthropic.InternalServerError, lambda: create("fails")).status_code == 500
    assert fails(anthropic.InternalServerError, lambda: create("page")).status_code == 502
    twice = [*hello, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "9"}]}]
    call = lambda: client.messages.create(model="stand-in", max_tokens=9, messages=twice)
    error = fails(anthropic.BadRequestError, call)
    assert error.body["error"]["type"] == "invalid_request_error", error
    error = fails(anthropic.BadRequestError, lambda: create("too-long"))
    assert error.body["error"]["message"] == "prompt is too long", error
    for stream in [False, True]:
        fails(anthropic.APITimeoutError, lambda: create("silent", on=client.with_options(timeout=0.5), stream=stream))


def streams():
    kinds = [event.type for event in create(stream=True)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    with client.messages.stream(**plain) as stream:
        words = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert words == message.content[0].text and message.usage.input_tokens > 0 and message.usage.output_tokens > 0
    stream = create("breaks", stream=True)
    heard = []
    fails((httpx2.HTTPError, anthropic.APIConnectionError), lambda: heard.extend(stream))
    assert heard and all(event.type != "message_stop" for event in heard)
    stream = create("stalls", stream=True)
    next(iter(stream))
    stream.close()
    stream = create("stalls", stream=True, on=client.with_options(timeout=0.5))
    fails((httpx2.TimeoutException, anthropic.APITimeoutError), lambda: list(stream))


def raw():
    answer = client.messages.with_raw_response.create(**plain)
    assert answer.headers["x-request-id"] == "req_stand_in" and answer.parse().content[0].text
    assert ("x-epitome" in answer.headers) == ("EPITOME" in os.environ), dict(answer.headers)


def elsewhere():
    assert [model.id for model in client.models.list()] == ["stand-in", "stand-in-mini"]
    counted = client.messages.count_tokens(model="stand-in", messages=hello)
    assert counted.input_tokens > 5, counted


async def at_once():
    async with AsyncAnthropic(max_retries=0) as many:
        async def one(at):
            if at % 2:
                return (await many.messages.create(**plain)).content[0].text
            async with many.messages.stream(**plain) as stream:
                return await stream.get_final_text()

        said = await asyncio.gather(*(one(at) for at in range(40)))
        assert len(set(said)) == 40 and all(words.endswith("Monday.") for words in said), said


errors()
streams()
raw()
elsewhere()
asyncio.run(at_once())
print("all of it holds")
