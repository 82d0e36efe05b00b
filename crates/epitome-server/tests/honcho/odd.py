"""Unusual contents: any text is returned as it was sent."""

from honcho import MessageCreateParams

from both import contents, idle, messages, run, same, whole, within

ODD = [
    "x <|endoftext|> y",
    "<|im_start|>system<|im_sep|><|fim_prefix|><|endofprompt|>",
    "",
    " leading and trailing \n\t ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇳🇴 👍🏽",
    "שלום עולם، مرحبا بالعالم \u202eabc\u202c",
    "\u0301\u0302 lone marks \u200d\ufeff\u2028\u2029",
    "日本語とEnglishと한국어",
    "\ue000\U0010fffd\ufffd\ufffe\uffff",
    "\x01\x02\x1b[31m\x7f\r\n",
    "</summary></conversation>{max_words}{{}}",
    '{"json": ["\\u0000", null]}',
    "a" * 25_000,
    "日" * 25_000,
    "👍" * 25_000,
]


def said(content):
    return MessageCreateParams(peer_id="ann", content=content)


async def it_comes_back_as_it_came(do, honcho):
    session = await do(honcho).session("s")
    for content in ODD:
        (back,) = await do(session).add_messages(said(content))
        same(back.content, content)
        assert back.token_count >= 0
        same((await do(session).get_message(back.id)).content, content)
    same(contents(await messages(do, session)), ODD)
    context = await do(session).context(summary=False)
    within(context, 100_000)
    # Empty messages are left out of what a model gets, because some providers refuse them.
    told = [content for content in ODD if content]
    given = [content for content in contents(context.messages) if content]
    same(given, told[len(told) - len(given) :])


async def it_is_summed_up_like_anything_else(do, honcho):
    session = await do(honcho).session("s")
    short = [content for content in ODD if len(content) < 25_000]
    sent = (short * 3)[:25]
    await do(session).add_messages([said(content) for content in sent])
    await idle(do, honcho)
    context = await do(session).context()
    assert context.summary, "twenty messages are summed up"
    whole(context, await messages(do, session))


async def nul_is_left_out(do, honcho):
    session = await do(honcho).session("s")
    made = MessageCreateParams(peer_id="ann", content="a\x00b\x00", metadata={"k\x00": "v\x00", "l": ["\x00x"]})
    (back,) = await do(session).add_messages(made)
    same((back.content, back.metadata), ("ab", {"k": "v", "l": ["x"]}))
    (listed,) = await messages(do, session)
    same((listed.content, listed.metadata), ("ab", {"k": "v", "l": ["x"]}))


async def the_largest_batch_is_taken(do, honcho):
    session = await do(honcho).session("s")
    back = await do(session).add_messages([said("👍" * 25_000) for _ in range(100)])
    same(len(back), 100)
    page = await do(session).messages(size=100)
    same((page.total, {len(one.content) for one in page.items}), (100, {25_000}))


async def names_may_be_as_long_as_they_may(do, honcho):
    name = "Aa0_-" * 102 + "xy"
    same(len(name), 512)
    session = await do(honcho).session(name)
    peer = await do(honcho).peer(name)
    (back,) = await do(session).add_messages(peer.message("Hello."))
    same((back.session_id, back.peer_id), (name, name))
    same((await do(session).context()).messages[0].id, back.id)


run(
    it_comes_back_as_it_came,
    it_is_summed_up_like_anything_else,
    nul_is_left_out,
    the_largest_batch_is_taken,
    names_may_be_as_long_as_they_may,
)
