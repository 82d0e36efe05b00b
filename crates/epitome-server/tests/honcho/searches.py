"""Search: in a session, and in a workspace but no other."""

from both import client, contents, messages, run, same, summed_up, tell, told


async def words_are_found_where_they_were_said(do, honcho):
    ann, bob = await do(honcho).peer("ann"), await do(honcho).peer("bob")
    one, two = await do(honcho).session("one"), await do(honcho).session("two")
    await do(one).add_messages([ann.message("My walrus likes herring."), bob.message("Mine prefers mussels.")])
    await do(two).add_messages([bob.message("The walrus is asleep.", metadata={"quiet": True})])
    same(contents(await do(one).search("walrus")), ["My walrus likes herring."])
    same(sorted(contents(await do(honcho).search("walrus"))), ["My walrus likes herring.", "The walrus is asleep."])
    same(await do(one).search("asleep"), [])
    same(await do(honcho).search("zebra"), [])
    (found,) = await do(two).search("walrus")
    same(vars(found), vars((await messages(do, two))[0]))


async def a_search_keeps_to_its_limit_and_its_filters(do, honcho):
    one, two = await told(do, honcho, "one", 30), await told(do, honcho, "two", 30)
    same(len(await do(honcho).search("parcel")), 10)
    same(len(await do(honcho).search("parcel", limit=3)), 3)
    same(len(await do(honcho).search("parcel", limit=100)), 60)
    same({found.session_id for found in await do(honcho).search("parcel", {"session_id": "two"}, 100)}, {"two"})
    same({found.peer_id for found in await do(one).search("parcel", {"peer_id": "bot"}, 100)}, {"bot"})
    late = await do(two).search("parcel", {"NOT": [{"peer_id": "bot"}]}, limit=100)
    same(len(late), 15)


async def what_was_summed_up_is_still_found(do, honcho):
    session = await told(do, honcho, "s", 10)
    ann = await do(honcho).peer("ann")
    await do(session).add_messages(ann.message("The word is xylophone."))
    await tell(do, session, 12, 65)
    await summed_up(do, session, 60, 60)
    same(contents(await do(session).search("xylophone")), ["The word is xylophone."])


async def nothing_of_another_workspace_is_found(do, honcho):
    other = client(f"{honcho.workspace_id}-other")
    session = await do(other).session("s")
    await do(session).add_messages((await do(other).peer("ann")).message("A secret walrus."))
    await told(do, honcho, "s", 3)
    same(await do(honcho).search("walrus"), [])
    same(len(await do(other).search("walrus")), 1)


async def a_question_finds_what_has_most_of_its_words(do, honcho):
    session = await told(do, honcho, "s", 5)
    ann = await do(honcho).peer("ann")
    colours = ["My favourite colour is green.", "Her favourite colour is red."]
    await do(session).add_messages([ann.message(text) for text in colours])
    same(contents(await do(session).search("Is my favourite colour still that green?"))[:2], colours)


async def a_peers_words_are_found_behind_those_of_many_others(do, honcho):
    session = await do(honcho).session("s")
    ann, bob = await do(honcho).peer("ann"), await do(honcho).peer("bob")
    await do(session).add_messages(ann.message("One walrus."))
    for _ in range(4):
        await do(session).add_messages([bob.message(f"Walrus number {at}.") for at in range(100)])
    same(contents(await do(ann).search("walrus")), ["One walrus."])
    same(contents(await do(session).search("walrus", {"peer_id": "ann"})), ["One walrus."])


async def words_without_spaces_are_found_by_their_parts(do, honcho):
    session = await told(do, honcho, "s", 3)
    ann = await do(honcho).peer("ann")
    asked = ["東京都の天気はどうですか", "北京今天的天气怎么样", "오늘 서울의 날씨는 어때요"]
    await do(session).add_messages([ann.message(text) for text in asked])
    for query, text in zip(("東京の天気", "北京天气", "서울 날씨"), asked):
        same(contents(await do(session).search(query))[0], text)
        same(contents(await do(honcho).search(query))[0], text)


async def any_text_may_be_looked_for(do, honcho):
    session = await told(do, honcho, "s", 3)
    plain = ('"', "'", "(", "a AND", "NEAR(", "*", "%", "col:umn", "-x", "日本", "   ")
    for query in (*plain, "\u202e", "x" * 5000, "a\x00b"):
        await do(session).search(query)
        await do(honcho).search(query)


run(
    words_are_found_where_they_were_said,
    a_search_keeps_to_its_limit_and_its_filters,
    what_was_summed_up_is_still_found,
    nothing_of_another_workspace_is_found,
    a_question_finds_what_has_most_of_its_words,
    a_peers_words_are_found_behind_those_of_many_others,
    words_without_spaces_are_found_by_their_parts,
    any_text_may_be_looked_for,
)
