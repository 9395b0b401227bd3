"""Corrections by cue: what the user tells the agent to do otherwise is found, and hardly anything else."""

from __future__ import annotations

import re

import pytest

from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message, ToolCall
from memory_core.features.corrections import correction_writes, find_corrections, hints

CORRECTIONS = re.split(
    r" \| |\n",
    """\
Don't do that again. | No, don't do it again! | Don't touch the config again. | Do not use emojis again.
Don't ever delete my branches. | Next time, please ask before deleting files.
next time don't push without running the tests | OK. Next time, verify the link first.
From now on, always answer in English. | From now on I want you to reply in German.
Please use metric units from now on. | Going forward, keep answers short. | In future, please include the source.
In the future, don't change files I haven't mentioned. | Always use type hints. | Never push to main.
please never commit .env files | Stop apologizing. | Please stop adding comments to the code.
I told you not to use pandas. | I already told you to use uv instead of pip! | That's wrong, it should be 42.
No, that's wrong. It should be in UTC. | That's not what I asked for. | Please remember that I use Windows.
Please remember to run the linter. | Could you remember that my name is Ana?
You shouldn't have deleted that file. | 下次不要这样 | 下次别自作主张修改配置文件 | 下次记得先跑测试
下次提交之前先跑一遍测试 | 好的，下次直接给我代码就行 | 下次遇到这种情况先停下来问我 | 以后不要用表情符号
以后请用中文回答 | 你以后回答简短一点 | 以后写周报时都按这个格式 | 别再道歉了 | 不要再用 print 调试了
不要再犯同样的错误 | 能不能别再重复我的问题？ | 记住，我用的是 Windows | 请记住：提交前要先跑测试
记住以后代码里不要写注释 | 从现在起请用英文回复 | 从今以后叫我老王 | 今后回复都要附上来源
我不是说过不要用全局变量吗？ | 跟你说了多少遍不要改这个文件 | 我说的不是北京，是上海 | 我要的不是表格，而是列表
不对，应该是 2024 年 | 错了，不是毫秒，而是秒 | 你理解错了，不是删除，而是归档""",
)

NO_CORRECTIONS = re.split(
    r" \| |\n",
    """\
I never eat fish. | Next time we meet let's have coffee. | next time I'll bring my kids
Next time I run the server it crashes, why? | The next time the cron job runs it should send a mail.
From now on I'm a student. | What happens from now on? | Write a poem that starts with: from now on I will sing.
In the future I want to be a doctor. | In future versions this function will be removed.
I always use the train to get to work. | You always give good answers, thanks! | Should I always use tabs?
Why does git always ask for my password? | Never mind. | Never give up!
We never use tabs at my company, is that common? | He told me: "never do that again".
My boss said from now on use Jira. | She said don't do that again. | Remember that time when we went to Paris?
Please remember me to your mother. | I told you about my trip.
Please translate: From now on, always use the stairs. | Proofread this:\\nNever push to main.
`never push to main` is our rule in README | > Always use tabs. | ```\\nalways use tabs\\nnever push to main\\n```
What's wrong with this code? | That's wrong on so many levels, haha | Stop the server and restart it.
Don't run it again yet, I'm still editing. | Add a test for the parser and run it. | 从现在起我是学生了
请写一段代码，从现在开始计时 | 以后再说吧 | 以后我想当医生 | 我以后要用这个模型做毕业设计 | 以后的计划是什么？
下次再聊 | 下次开会是周三 | 下次我们一起去爬山吧 | 我记住了 | 记住密码的功能怎么实现？
如何让浏览器不再记住我的密码 | 这不是结束，而是开始 | 他不是老师，而是医生
这个函数不是返回列表，而是返回生成器吗？ | 翻译：以后不要迟到 | 请翻译下面这段话：从现在起，请大家不要吸烟。
请把这句话翻译成英文：以后请不要在这里停车 | 老师说以后不要迟到 | 吃完饭以后不要马上跑步，会不舒服 | 别再难过了
不要再加班了，太累 | 今后的路还很长 | 不要用库，自己实现一个排序 | 要不要再买一个？""",
)


def user(text: str) -> Message:
    return Message("user", text)


@pytest.mark.parametrize("text", CORRECTIONS)
def test_a_correction_is_found(text: str) -> None:
    (found,) = find_corrections([user(text)])
    assert text.endswith(found.text)


@pytest.mark.parametrize("text", NO_CORRECTIONS)
def test_other_talk_is_no_correction(text: str) -> None:
    assert find_corrections([user(text.replace("\\n", "\n"))]) == ()


@pytest.mark.parametrize("role", ["assistant", "system", "tool"])
def test_only_users_correct(role: str) -> None:
    assert find_corrections([Message(role, "Don't do that again. 下次不要这样")]) == ()


def test_only_the_sentences_with_a_cue_are_taken() -> None:
    (found,) = find_corrections([user("The report is fine. Next time, use A4.\n另外，以后都用公制单位。谢谢！")])
    assert found.text == "Next time, use A4. 另外，以后都用公制单位。"


def test_a_log_or_an_article_that_was_pasted_is_not_looked_at() -> None:
    log = "2026-05-11 10:00:00 never use this port\n    always use tabs\nINFO never push to main\n"
    article = "\n".join(f"Line {number} of a long article about ships and harbours." for number in range(60))
    pasted = article.replace("Line 30", "Never use steam.\nLine 30")
    assert find_corrections([user(f"Why?\n{log}"), user(pasted)]) == ()
    assert len(find_corrections([user(f"{article}\nNext time, be brief.")])) == 1


def test_hints_name_the_message_and_quote_it() -> None:
    found = find_corrections([user("hi"), user("From now on, answer in French.")])
    assert hints(found) == ('message 2 looks like a correction by the user: "From now on, answer in French."',)


def test_a_correction_is_kept_verbatim_with_the_turn_it_answers(registry: MemoryTypeRegistry) -> None:
    talk = [user("Clean up."), Message("assistant", "I deleted\nthe logs."), user("Don't do that again.")]
    (write,) = correction_writes(find_corrections(talk), talk, registry)
    data = write.memory_data
    assert data.fields == {
        "pattern_type": "rule",
        "content": "Don't do that again.\n\nSaid in reply to: I deleted the logs.",
    }
    assert (data.memory_type, data.given["salience"], dict(data.source)) == ("patterns", 0.8, {"kind": "user_explicit"})


def test_the_turn_is_named_in_chinese_and_by_its_tools(registry: MemoryTypeRegistry) -> None:
    talk = [user("清理一下"), Message("assistant", tool_calls=(ToolCall("1", "删除文件"),)), user("下次不要这样")]
    (write,) = correction_writes(find_corrections(talk), talk, registry)
    assert write.memory_data.fields["content"] == "下次不要这样\n\n针对的回复：[删除文件]"


def test_the_same_correction_twice_is_written_once(registry: MemoryTypeRegistry) -> None:
    talk = [user("Never push to main."), user("Never push to main.")]
    assert len(correction_writes(find_corrections(talk), talk, registry)) == 1


def test_without_patterns_nothing_is_written() -> None:
    talk = [user("Never push to main.")]
    assert correction_writes(find_corrections(talk), talk, MemoryTypeRegistry()) == []


@pytest.mark.parametrize(
    "text",
    ["no " * 90_000, "，" * 200_000, "以后" * 90_000, '"' * 200_000, "<a>" * 60_000, "a/" * 90_000, "." * 200_000],
)
def test_long_odd_text_is_read_at_once(text: str) -> None:
    assert find_corrections([user(text)] * 3) == ()
