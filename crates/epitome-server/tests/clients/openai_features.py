"""What programs rely on in OpenAI's client beyond plain calls: errors by class, timeouts, raw responses, other routes,
async clients, streams that end early. All of it must work with and without the proxy.

The header `x-act` makes the stand-in upstream misbehave.
"""
import asyncio
import io
import os

import httpx2
import openai
from openai import AsyncOpenAI, OpenAI

client = OpenAI(max_retries=0)
hello = [{"role": "user", "content": "Which berths are free?"}]


def create(act=None, on=client, **more):
    headers = {"x-act": act} if act else {}
    return on.chat.completions.create(model="stand-in", messages=hello, extra_headers=headers, **more)


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors():
    error = fails(openai.AuthenticationError, lambda: create(on=client.with_options(api_key="sk-wrong")))
    assert error.code == "invalid_api_key", error
    error = fails(openai.RateLimitError, lambda: create("busy"))
    assert error.response.headers["retry-after"] == "7" and error.code == "rate_limit_exceeded", error
    assert fails(openai.InternalServerError, lambda: create("fails")).status_code == 500
    page = fails(openai.InternalServerError, lambda: create("page"))
    assert page.status_code == 502 and page.response.headers["content-type"].startswith("text/html"), page
    orphan = [*hello, {"role": "tool", "tool_call_id": "call_1", "content": "9"}]
    error = fails(openai.BadRequestError, lambda: client.chat.completions.create(model="stand-in", messages=orphan))
    assert "no such call" in error.message and error.type == "invalid_request_error", error
    error = fails(openai.BadRequestError, lambda: create("refuses", stream=True))
    assert "refused, as configured by the test" in error.message, error
    error = fails(openai.BadRequestError, lambda: create("too-long"))
    assert error.code == "context_length_exceeded", error
    for stream in [False, True]:
        fails(openai.APITimeoutError, lambda: create("silent", on=client.with_options(timeout=0.5), stream=stream))


def streams():
    chunks = list(create(stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop" and all(chunk.usage is None for chunk in chunks)
    words = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert words.endswith("are free until Monday."), words
    # One that breaks off is an error, and never an end.
    stream = create("breaks", stream=True)
    heard = []
    fails((httpx2.HTTPError, openai.APIConnectionError), lambda: heard.extend(stream))
    assert heard and all(chunk.choices[0].finish_reason is None for chunk in heard)
    # One that is closed early, and one that stalls and is given up on.
    stream = create("stalls", stream=True)
    next(iter(stream))
    stream.close()
    stream = create("stalls", stream=True, on=client.with_options(timeout=0.5))
    fails((httpx2.TimeoutException, openai.APITimeoutError), lambda: list(stream))


def raw():
    answer = client.chat.completions.with_raw_response.create(model="stand-in", messages=hello)
    assert answer.headers["x-request-id"] == "req_stand_in" and answer.parse().choices[0].message.content
    assert ("x-epitome" in answer.headers) == ("EPITOME" in os.environ), dict(answer.headers)


def elsewhere():
    assert [model.id for model in client.models.list()] == ["stand-in", "stand-in-mini"]
    bytes_ = bytes(range(256)) * 9
    sent = client.files.with_raw_response.create(file=("a.bin", io.BytesIO(bytes_)), purpose="assistants")
    assert bytes_ in sent.content and sent.headers["content-type"].startswith("multipart/form-data")
    gone = client.files.with_raw_response.delete("file_1")
    assert gone.text == '{"method":"DELETE","path":"/v1/files/file_1"}', gone.text
    listed = client.files.with_raw_response.list(purpose="a b", limit=3)
    assert listed.text == '{"method":"GET","path":"/v1/files?limit=3&purpose=a+b"}', listed.text
    went = client.responses.create(model="stand-in", previous_response_id="resp_1", input="And berth 9?")
    assert went.status == "completed" and went.output_text


async def at_once():
    async with AsyncOpenAI(max_retries=0) as many:
        async def one(at):
            if at % 2:
                reply = await many.chat.completions.create(model="stand-in", messages=hello)
                return reply.choices[0].message.content
            stream = await many.chat.completions.create(model="stand-in", messages=hello, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        said = await asyncio.gather(*(one(at) for at in range(40)))
        assert len(set(said)) == 40 and all(words.endswith("Monday.") for words in said), said


errors()
streams()
raw()
elsewhere()
asyncio.run(at_once())
print("all of it holds")
