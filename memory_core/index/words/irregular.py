"""English forms that no stemmer brings together: bought and buy, children and child.

Forms that are as often another word (left, rose, saw, found, lives, leaves) are not among them.
"""

from __future__ import annotations

import re

_TABLE = """
become: became
begin: began begun
bend: bent
bite: bit bitten
blow: blew blown
break: broke broken
breed: bred
bring: brought
build: built
burn: burnt
buy: bought
catch: caught
child: children
choose: chose chosen
come: came
creep: crept
deal: dealt
dig: dug
draw: drew drawn
dream: dreamt
drink: drank drunk
drive: drove driven
eat: ate eaten
fall: fallen
feed: fed
feel: felt
fight: fought
flee: fled
fly: flew flown
foot: feet
forbid: forbade forbidden
forget: forgot forgotten
forgive: forgave forgiven
freeze: froze frozen
give: gave given
goose: geese
grow: grew grown
half: halves
hang: hung
hear: heard
hide: hid hidden
hold: held
keep: kept
knife: knives
know: knew known
lay: laid
lead: led
learn: learnt
lend: lent
lose: lost
man: men
mean: meant
meet: met
mouse: mice
overcome: overcame
pay: paid
person: people
ride: rode ridden
ring: rang rung
run: ran
seek: sought
sell: sold
send: sent
shake: shook shaken
shelf: shelves
shine: shone
shoot: shot
show: shown
shrink: shrank shrunk
sing: sang sung
sink: sank sunk
sit: sat
sleep: slept
slide: slid
speak: spoke spoken
spend: spent
spill: spilt
spin: spun
stand: stood
steal: stole stolen
stick: stuck
sting: stung
strike: struck
swear: swore sworn
sweep: swept
swim: swam swum
swing: swung
take: took taken
teach: taught
tear: tore torn
think: thought
throw: threw thrown
tooth: teeth
understand: understood
wake: woke woken
wear: wore worn
weep: wept
wife: wives
win: won
withdraw: withdrew withdrawn
wolf: wolves
woman: women
write: wrote written
"""
_BASES = {
    form: base for base, _, forms in (line.partition(": ") for line in _TABLE.split("\n")) for form in forms.split()
}
_FORM = re.compile(rf"(?<![^\W_])(?:{'|'.join(sorted(_BASES, key=len, reverse=True))})(?![^\W_])")


def regular(folded: str) -> str:
    """``folded`` (lower case) with irregular forms replaced by the words they are forms of."""
    return _FORM.sub(lambda found: _BASES[found[0]], folded)
