#!/usr/bin/env python3
"""Writes tests/data/jinja_cases.jsonl: small templates with what Python's jinja2 makes of them.

The environment is the one that Hugging Face's transformers renders chat templates with: the immutable
sandbox, trim_blocks, lstrip_blocks, loop controls, a generation block, tojson as plain json.dumps,
raise_exception and strftime_now. The expected outputs are jinja2's own (run with 3.1); an error is kept as the name
of its class. First line: {"context": ...}, shared by all cases that have none of their own.

Usage: tools/make_jinja_cases.py [OUTPUT]
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generate"), [], [], body).set_lineno(line)

    def _generate(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    now = datetime.datetime(2026, 12, 1, 8, 30, 0)
    environment.globals["strftime_now"] = lambda format: now.strftime(format)
    return environment


CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": " Hi, <b>\"q\" & 'a'</b> "},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True]}}}]},
        {"role": "tool", "content": "猫 é", "name": "f"},
    ],
    "tools": [{"type": "function",
               "function": {"name": "get", "description": "a<b & 'c' é猫", "parameters": {"type": "object"}}}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "s": "Hello World",
    "u": "Größe ÄÖÜ ñandú 猫犬 ß ﬁ",
    "ml": "one\n  two\n\nthree\n",
    "n": 7, "m": -3, "z": 0, "f": 2.5, "big": 1e22, "small": 1.5e-7, "neg": -0.0,
    "t": True, "fa": False, "no": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "e": [], "nested": [[1, [2]], {"k": [3]}],
    "d": {"b": 1, "a": "<é>", "C": None, "items": 5}, "ed": {},
    "people": [{"name": "Bo", "age": 30, "job": {"t": "x"}}, {"name": "al", "age": 25, "job": {"t": "y"}},
               {"name": "Cy", "age": 30}],
    "mixed": [1, "1", 1.0, True, None, [], {}],
}

# Each becomes {{ ... }}.
EXPRESSIONS = r"""
1 + 2 * 3
7 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
-7.5 % 2
7.5 // 2
-7.5 // 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
2 ** 0.5
0 ** 0
1 / 0
1 // 0
1 % 0
1.0 / 0
0.0 ** -1
1e3
1E-3
1.5e+10
1_000
1_000.5
0x1F
0b101
0o17
0X1f
007
00
1.
.5
1.e5
1e400
123456789012
0.1 + 0.2
1e16
1e15
123456789.123456789
1e-4
0.00001
1.0
100.0
5e-324
1.7976931348623157e308
big
small
neg
3.0 * 2
10 / 5
true
True
TRUE
false
none
None
null
'a' 'b' "c"
'a' ~ 1 ~ none ~ true ~ 1.5 ~ undefined_name
'a' + 'b'
'a' + 1
1 + 'a'
'ab' * 3
3 * 'ab'
'ab' * -1
'ab' * 1.5
[1, 2] + [3]
[1] + (2,)
(1,) + (2,)
[1, 2] * 2
(1, 2) * 2
l - 1
true + 1
true * 3
-true
+true
-'a'
+'a'
-undefined_name
-n
- -n
+n
not n
not z
not not n
not undefined_name
n and z
z and n
n or z
z or n
none or 'x'
'' or [] or {} or 'last'
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 == 2 != 3
1 == 1.0
1 == true
'1' == 1
none == none
none == false
[1, 2] == [1, 2.0]
[1, 2] == (1, 2)
{'a': 1} == {'a': 1.0}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
'a' < 'b'
'a' < 'B'
'é' > 'z'
'猫' > 'é'
1 < 'a'
none < 1
[1, 2] < [1, 3]
[1] < [1, 0]
(1, 2) >= (1, 2)
[1] < [none]
{} < {}
undefined_name < 1
undefined_name == undefined_other
undefined_name == none
undefined_name != 1
1 in l
4 in l
4 not in l
'a' in 'abc'
'' in ''
1 in 'abc'
'a' in d
'x' in d
'a' in d.keys()
1 in d.values()
('a', '<é>') in d.items()
1 in 5
1 in none
1 in undefined_name
undefined_name in l
undefined_name in 'abc'
[1] in d
2 in range(3)
'a' in ('a', 'b')
none in mixed
true in [1]
not 1 in l
'x' if t else 'y'
'x' if fa else 'y'
'x' if fa
('x' if fa) is undefined
('x' if fa) | default('dd')
'a' if fa else 'b' if fa else 'c'
('x' if fa).foo
l[0]
l[-1]
l[5]
l[5].x
l[-4]
l['x']
l[1.0]
l[true]
l[none]
l.0
l.1
nested.0.1.0
nested[1].k[0]
s[0]
s[-1]
s[50]
u[3]
u[-1]
d['b']
d['nope']
d.nope
d.nope.x
d['nope']['x']
d.b
d['items']
d.items
d.items()
d.get('b')
d.get('x')
d.get('x', 4)
d.get('x', default=4)
d.get()
d.keys()
d.values()
d.keys() | list
d.values() | list
d.items() | list
d.keys()[0]
d.copy()
d.b.real
n.real
n.imag
n.numerator
f.real
f.is_integer()
n.bit_length()
none.x
none['x']
none.x.y
none[0]
n[0]
n.x
t.x
s.x
s.x.y
s.upper
s.__class__
s.__class__.__mro__
''.__class__.__mro__[1].__subclasses__()
s['__class__']
s.__len__()
d.__class__
undefined_name
undefined_name.x
undefined_name['x']
undefined_name[0]
undefined_name()
undefined_name + 1
1 + undefined_name
'a' + undefined_name
undefined_name ~ 'a'
undefined_name | length
undefined_name | upper
undefined_name | list
undefined_name | join
undefined_name | string
undefined_name | int
undefined_name | float
undefined_name | trim
undefined_name | tojson
undefined_name | first
undefined_name | items | list
undefined_name | abs
undefined_name | default
undefined_name | default('x')
undefined_name[1:2]
[undefined_name]
[undefined_name, none]
{'a': undefined_name}
n()
s()
s.nope()
none()
messages[0].role
messages[0]['role']
messages[-1].content
messages[2].tool_calls[0].function.arguments
messages[2].tool_calls[0].function.arguments.y
messages.append(1)
messages.append
messages.pop()
messages.clear()
messages.sort()
messages.extend([1])
messages.insert(0, 1)
messages.reverse()
messages.remove(1)
d.update({})
d.pop('a')
d.setdefault('x', 1)
d.clear()
d.popitem()
l.copy()
l.index(1)
l.index(9)
l.count(1)
(1, 2, 1).count(1)
(1, 2, 1).index(2)
l[1:]
l[:2]
l[:-1]
l[::-1]
l[::2]
l[5:]
l[-2:]
l[1:2]
l[2:1]
l[::0]
l['a':]
l[none:2]
l[1:none]
l[0:100:2]
l[-1:-10:-1]
(1, 2, 3)[1:]
s[1:4]
s[::-1]
s[-5:]
s[6:]
u[:5]
u[::2]
u[6:9]
n[1:]
d[1:]
undefined_name[:2]
range(5)
range(5) | list
range(2, 5) | list
range(5, 0, -2) | list
range(0)
range(1, 10, 3)
range(5)[1:]
range(5)[2]
range(5)[-1]
range(1, 2, 0)
range(1.5)
range('a')
range()
range(100001)
range(100000) | length
range(10 ** 12)
(1, 2)
(1,)
()
[1, (2, 3), [4], {'a': (5,)}]
{}
{'a': 1, 'b': [none, true, false]}
{1: 'a', 2.5: 'b', none: 'c', true: 'd'}
{(1, 2): 3}
{[1]: 2}
{'a': 1, 'a': 2}
[1, 2, 3,]
{'a': 1,}
1, 2
'it\'s'
"it's"
"say \"hi\""
['it\'s', "say \"hi\"", 'both \' and "']
'a\nb\tc\\d'
['a\nb\tc\\d\r', '\x00\x1b\x7f', '\u00e9\u732b', '\xa0', '\u200b', '\U0001F600']
'\x41\u00e9\U0001F600\101\q'
'\x4'
'\u12'
'line\
continued'
"{{ not a tag }}"
'%}'
'Hello'.upper()
'Hello'.lower()
'hello world-foo bar_x'.title()
"they're bill's 3rd".title()
'hELLO wORLD'.capitalize()
'Hello'.swapcase()
'Straße'.casefold()
'Straße'.upper()
'ΑΣ'.lower()
'ΑΣ ΣΑ'.lower()
'İ'.lower()
'ǆ'.title()
'ﬁn'.capitalize()
u.upper()
u.lower()
u.title()
u | length
'  a b '.strip()
'  a b '.lstrip()
'  a b '.rstrip()
'xxaxx'.strip('x')
'abcxcba'.strip('abc')
'abc'.strip('')
'abc'.strip(none)
'abc'.strip(1)
'\u00a0\u3000a\u2003'.strip()
'éaé'.strip('é')
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.split(',', maxsplit=2)
'a,b,,c'.split(sep=',')
'a,b,,c'.split(',', -1)
'a,b,,c'.split(',', 0)
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.split(maxsplit=1)
' a  b c '.rsplit(none, 1)
' a  b c '.rsplit()
'a,b,,c'.rsplit(',', 1)
'a,b,,c'.rsplit(',')
'abc'.split('')
''.split()
''.split(',')
'a</think>b</think>c'.split('</think>')[-1]
'a\nb\r\nc\n'.splitlines()
'a\nb\r\nc\n'.splitlines(true)
'a\x0bb\x0cc\x1cd\u2028e\x85f'.splitlines()
''.splitlines()
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'abc'.rpartition('-')
'abc'.partition('')
'abcabc'.find('c')
'abcabc'.find('c', 3)
'abcabc'.find('x')
'abcabc'.rfind('c')
'abcabc'.find('c', 0, 2)
'é猫x'.find('x')
'é猫x'.find('')
'abcabc'.index('b')
'abcabc'.index('x')
'abcabc'.rindex('b')
'abcabc'.count('bc')
'aaaa'.count('aa')
'abc'.count('')
'abcabc'.count('b', 2)
'abc'.find(1)
'abc'.startswith('ab')
'abc'.startswith(('x', 'a'))
'abc'.startswith('b', 1)
'abc'.startswith('bc', 1, 2)
'abc'.startswith('')
'abc'.startswith(['a'])
'abc'.startswith(1)
'abc'.endswith('bc')
'abc'.endswith(('x', 'c'))
'abc'.endswith('b', 0, 2)
'abc'.endswith('', 5)
'a-b-c'.replace('-', '+')
'a-b-c'.replace('-', '+', 1)
'a-b-c'.replace('-', '')
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'é猫'.replace('', '.')
'abc'.replace('b')
'abc'.replace('b', 1)
', '.join(['a', 'b'])
', '.join('abc')
', '.join([1, 2])
', '.join(d)
', '.join(none)
'{} and {}'.format(1, 'b')
'{1} {0} {1}'.format('a', 'b')
'{a} {b}'.format(a=1, b=[1])
'{0.real} {1[0]} {2[k]}'.format(5, [7], {'k': 8})
'{:>8}|{:<8}|{:^8}|{:*^9}|'.format('ab', 'cd', 'ef', 'gh')
'{:5d}|{:05d}|{:+d}|{:,}|{:x}|{:#X}|{:b}|{:o}|{:c}'.format(42, 42, 42, 1234567, 255, 255, 5, 8, 65)
'{:.2f}|{:8.3f}|{:e}|{:g}|{:%}|{:.1%}|{:,.2f}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25, 0.256, 1234567.891)
'{:.3}|{:10.3}|{!r:>6}|{!s}'.format('abcdef', 'abcdef', 'a', none)
'{:.3}|{:.0}|{:}|{:10}'.format(3.14159, 2.5, 1e20, 1.5)
'{{}} {}'.format(1)
'{'.format(1)
'}'.format(1)
'{}'.format()
'{x}'.format()
'{:d}'.format('a')
'{:s}'.format(1)
'{:d}'.format(1.5)
'{:.2d}'.format(1)
'{:{}}|'.format('a', 5)
'{:>{w}}|'.format('a', w=4)
'{0.__class__}'.format(1)
'{}'.format(true)
'{:5}|{:<5}|'.format(true, none)
'{:^+9.2f}|{: d}|{:=+6d}|'.format(2.5, 3, 4)
'{a[x]}'.format(a={'x': 1})
'{a.x}'.format(a={'x': 1})
'{:_}|{:_x}'.format(1234567, 1234567)
'%s %d %r' % ('a', 5, 'b')
'%s' % 'x'
'%s' % 5
'%s' % none
'%s' % [1, 2]
'%s' % (1, 2)
'%s %s' % 'x'
'%(a)s %(b)05.1f' % {'a': 1, 'b': 2}
'%(x)s' % {'a': 1}
'%5d|%-5d|%05d|%+d|% d' % (42, 42, 42, 42, 42)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%e %.2e %g %G %.3g' % (12345.678, 0.00012, 1e10, 1e-10, 3.14159)
'%10.3f|%-10.2f|%010.2f|%+.1f' % (3.14159, 2.5, -2.5, 1)
'%c%c' % (65, 'é')
'%%' % ()
'%5s|%-5s|%.2s|%5.1s|' % ('ab', 'cd', 'efg', 'hij')
'%d' % 3.99
'%d' % 'a'
'%x' % 1.5
'%z' % 1
'%' % 1
'%s' % ()
'%*d' % (5, 42)
'%-*d|' % (5, 42)
'%.*f' % (2, 3.14159)
'%.3d' % 5
'%i %u' % (1, 2)
'%s' % undefined_name
'%f' % undefined_name
'%s' % {'a': 1}
'%d%%' % 50
'abc'.isdigit()
'123'.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'abc'.isalpha()
'é猫'.isalpha()
'ab1'.isalnum()
'ab 1'.isalnum()
''.isalpha()
' \t'.isspace()
''.isspace()
'ABC'.isupper()
'AbC'.isupper()
'abc1'.islower()
'123'.islower()
'Ab Cd'.istitle()
'AB'.istitle()
'abc'.isascii()
'é'.isascii()
'a b'.isprintable()
'a\n'.isprintable()
'a_1'.isidentifier()
'1a'.isidentifier()
'5'.zfill(3)
'-5'.zfill(4)
'+5'.zfill(4)
'abc'.zfill(2)
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '*')
'ab'.center(5, '-')
'abc'.center(6, '-')
'abc'.center(7) ~ '|'
'é'.center(4, '猫')
'ab'.ljust(5, 'xy')
'a\tb'.expandtabs(4)
'TestHook'.removeprefix('Test')
'TestHook'.removesuffix('Hook')
'Test'.removesuffix('')
'Test'.removeprefix('x')
'x'.nope
s | upper
s | lower
'hello wORLD foo-bar (baz) it\'s' | title
'hELLO' | capitalize
5 | upper
none | upper
'  x ' | trim
'xxaxx' | trim('x')
5 | trim
'a-b' | replace('-', '+')
'a-b-c' | replace('-', '+', 1)
112 | replace(1, 2)
'a' | replace('a')
[1, 2, 3] | join
[1, 2, 3] | join(', ')
['a', none, true] | join('|')
people | join(', ', attribute='name')
'abc' | join('-')
5 | join
none | join
'abc' | length
l | length
d | length
5 | length
none | length
l | count
l | first
e | first
s | first
d | first
e | first is undefined
5 | first
l | last
s | last
d | last
e | last
none | default('x')
none | default('x', true)
'' | default('x', true)
'' | d('x', boolean=true)
0 | d('x')
d.nope | d('x')
d.nope | d(d.nope2) | d('z')
'abc' | list
d | list
5 | list
(1, 2) | list
5 | string
none | string
[1] | string
'5' | int
'x' | int
'x' | int(7)
'5.7' | int
5.7 | int
-5.7 | int
' 42 ' | int
'0x1f' | int
'0x1f' | int(base=16)
'1f' | int(0, 16)
'101' | int(base=2)
'1_000' | int
true | int
none | int
[] | int
'1e3' | int
'inf' | int
'5.5' | float
'x' | float
'x' | float(1.5)
5 | float
none | float
'1e3' | float
' 1.5 ' | float
'inf' | float
'nan' | float
'1_0.5' | float
-5 | abs
5.5 | abs
'a' | abs
2.567 | round
2.567 | round(2)
2.5 | round
3.5 | round
-2.5 | round
2.4 | round(0, 'ceil')
2.6 | round(method='floor')
2.345 | round(2)
2.675 | round(2)
1234 | round(-2)
1250 | round(-2)
1234.5 | round(-2)
5 | round
5 | round(1)
2.567 | round(1, 'ceil')
2.5 | round(0, 'x')
'a' | round
l | sort
l | sort(reverse=true)
ls | sort
ls | sort(case_sensitive=true)
['b', 1] | sort
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age,name') | map(attribute='name') | join(',')
people | sort(attribute='name', reverse=true) | map(attribute='name') | join(',')
d | sort
'hello' | sort
[none, 1] | sort
[[2, 1], [1, 2]] | sort
l | reverse | list
l | reverse
'abc' | reverse
u | reverse
5 | reverse
ls | unique | list
[1, 1.0, true, '1', 2] | unique | list
ls | unique(case_sensitive=true) | join
people | unique(attribute='age') | map(attribute='name') | list
['a', 'A', 'b'] | unique | list
[[1]] | unique | list
l | min
l | max
e | max
ls | min
ls | max(case_sensitive=true)
people | max(attribute='age')
people | min(attribute='name')
['b', 1] | max
l | sum
people | sum(attribute='age')
[[1], [2]] | sum(start=[])
['a'] | sum
e | sum
[1.5, 2] | sum
l | map('string') | join('-')
ls | map('upper') | list
ls | map('upper')
ls | map('replace', 'a', 'x') | list
people | map(attribute='job.t') | list
people | map(attribute='job.t', default='-') | list
people | map(attribute='nope', default=0) | list
[[1, 2], [3, 4]] | map(attribute=0) | list
[[1, 2], [3, 4]] | map(attribute='1') | list
[[1, 2], [3]] | map('length') | sum
[-1, 2] | map('abs') | list
ls | map('nope') | list
ls | map | list
none | map('upper') | list
5 | map('abs') | list
[0, 1, 2, ''] | select | list
[0, 1, 2, 3] | select('odd') | list
[0, 1, 2, 3] | select('gt', 1) | list
[0, 1, 2, 3] | select('>=', 2) | list
[0, 1, 2, 3] | select('in', [1, 3]) | list
[0, 1, none] | reject('none') | list
[0, 1, 2] | reject | list
[0, 1, 2] | reject('even') | list
people | selectattr('job') | map(attribute='name') | list
people | selectattr('age', 'equalto', 30) | map(attribute='name') | list
people | selectattr('job.t', 'eq', 'x') | map(attribute='name') | list
people | rejectattr('age', 'gt', 26) | map(attribute='name') | list
people | rejectattr('job') | map(attribute='name') | list
people | selectattr('job', 'undefined') | map(attribute='name') | list
people | selectattr | list
people | selectattr('age', 'nope') | list
[1] | select('nope') | list
messages | selectattr('role', 'equalto', 'user') | list | length
messages | selectattr('role', 'in', ['user', 'tool']) | map(attribute='content') | list
messages | rejectattr('role', 'equalto', 'system') | first
none | selectattr('x') | list | length
people | groupby('age')
people | groupby('age') | map(attribute='grouper') | list
people | groupby('job.t', default='zz') | map(attribute='0') | list
people | groupby('name') | map('first') | list
people | groupby('name', case_sensitive=true) | map(attribute='grouper') | list
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3, 4, 5] | batch(2, 0) | list
[1, 2, 3, 4, 5] | batch(3, fill_with='x') | list
[1, 2, 3, 4, 5] | slice(2) | list
[1, 2, 3, 4, 5] | slice(3, 0) | list
[1, 2] | slice(3) | list
[1] | batch | list
d | items | list
d | items
5 | items | list
d | dictsort
d | dictsort(true)
d | dictsort(reverse=true)
{'a': 2, 'b': 1} | dictsort(by='value')
{'a': 2, 'b': 1} | dictsort(false, 'value', true)
{'a': 2} | dictsort(by='x')
[1] | dictsort
'a\nb\n\nc' | indent
'a\nb\n\nc' | indent(2)
'a\nb\n\nc' | indent(2, true)
'a\nb\n\nc' | indent(2, true, true)
'a\nb\n\nc' | indent('> ')
'a\nb\n' | indent(2) ~ '|'
ml | indent(first=true, width=1)
5 | indent
'the quick brown fox jumps over' | truncate(15)
'the quick brown fox jumps over' | truncate(15, true)
'the quick brown fox jumps over' | truncate(15, false, '…')
'the quick brown fox' | truncate(15)
'the quick brown fox' | truncate(15, leeway=0)
'foo bar baz qux' | truncate(9, true, leeway=0)
'foo bar' | truncate(2)
u | truncate(6, true, '', 0)
'ab' | center(6) ~ '|'
'abc' | center(6) ~ '|'
'%s-%d' | format('a', 3)
'%(a)s' | format(a=1)
'%s' | format(1, 2)
'x' | format
'%s' | format
'<a href="x">\'&</a>' | escape
'<a>' | e
'<a>' | e | e
'<a>' | e | forceescape
'<a>' | safe
('<a>' | safe) + '<b>'
'<b>' + ('<a>' | safe)
('<a>' | safe) ~ '<b>'
('<a>' | safe) * 2
('%s' | safe) % '<b>'
('<a>' | safe).upper() + '<b>'
('-' | safe).join(['<', '>'])
('<a>' | safe) | upper
['<' | safe]
('<a>' | safe) is escaped
'<a>' is escaped
('<a>' | safe) | string is escaped
('<a>' | safe) | trim is escaped
('<a>' | safe) | replace('a', '<')
'<p>a  <b>b</b>\n&amp; c</p><!-- x -->' | striptags
'a b/c?d=é&' | urlencode
{'a': 1, 'b c': 'd/e'} | urlencode
[('a', 1), ('b', 'x y')] | urlencode
5 | urlencode
'one two, three-four five\'s' | wordcount
'one two three four five' | wordwrap(9)
'a verylongwordindeed b' | wordwrap(6)
'a verylongwordindeed b' | wordwrap(6, false)
'one two\nthree four five' | wordwrap(8, wrapstring='|')
'well-known facts-of-life' | wordwrap(6)
'well-known' | wordwrap(6, break_on_hyphens=false)
{'a': 1, 'b': none, 'c': '<'} | xmlattr
{'a': 1} | xmlattr(false)
{'a b': 1} | xmlattr
people[0] | attr('name')
s | attr('upper')
s | attr('__class__')
s | attr('nope')
13 | filesizeformat
1 | filesizeformat
1000 | filesizeformat
123456789 | filesizeformat
123456789 | filesizeformat(true)
'a' | pprint
d | tojson
tools | tojson
tools | tojson(indent=2)
d | tojson(indent=4)
d | tojson(ensure_ascii=true)
d | tojson(ensure_ascii=False, indent=2)
{'b': 1, 'a': "<é>"} | tojson
d | tojson(sort_keys=true)
[1, [], {}, [[]], {'a': []}] | tojson
[1, [], {}, [[]], {'a': []}] | tojson(indent=2)
[1, 2] | tojson(indent=0)
[1, 2] | tojson(indent='--')
[1, {'a': 2}] | tojson(separators=(',', ':'))
[1, {'a': 2}] | tojson(separators=(', ', ': '), indent=1)
'a"b\\c/\n\t\r\x08\x0c\x01\x7f\u2028é😀' | tojson
'é😀\x7f' | tojson(ensure_ascii=true)
[1.0, 1e22, 1.5e-7, true, false, none] | tojson
('inf' | float) | tojson
('nan' | float) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
(1, 2) | tojson
range(3) | tojson
d.items() | tojson
'x' | tojson(5)
('<a>' | safe) | tojson
namespace(a=1) | tojson
x is defined
s is defined
d.x is defined
d.b is defined
s is undefined
x is undefined
none is none
s is none
x is none
s is string
n is string
('a' | safe) is string
n is number
f is number
t is number
s is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
t is true
n is true
1 is true
fa is false
0 is false
d is mapping
l is mapping
l is iterable
s is iterable
n is iterable
none is iterable
x is iterable
d is iterable
range(2) is iterable
l is sequence
s is sequence
d is sequence
n is sequence
range(2) is sequence
d.items() is sequence
d.items() is iterable
(l | map('abs')) is iterable
(l | map('abs')) is sequence
x is sequence
range is callable
s.upper is callable
s is callable
x is callable
d is sameas d
none is sameas none
1 is sameas 1
1 is sameas true
1 is sameas 1.0
[] is sameas []
3 is odd
3 is even
0 is even
2.0 is even
'a' is odd
9 is divisibleby 3
9 is divisibleby(2)
9 is divisibleby 0
'abc' is lower
'aBc' is lower
'ABC' is upper
5 is upper
'upper' is filter
'nope' is filter
'odd' is test
'nope' is test
1 is eq 1
1 is equalto 1
1 is == 1
1 is ne 2
1 is lt 2
1 is lessthan(2)
2 is gt 1
2 is greaterthan 1
2 is ge 2
2 is le 1
1 is in l
1 is in [1]
9 is not in l
9 is in(l)
s is not none
s is not defined
not s is defined
s is defined and n is number
s is string or n
n is defined == true
3 is odd is true
n is nope
n is divisibleby
none is none if t else 'b'
'x' if n is odd
1 if n is defined else 2
s is string if true else false
n | nope
n | nope if fa else 1
'ok' if t else (n | nope)
n is nope if fa else 1
dict(a=1, b='x')
dict({'a': 1}, b=2)
dict([('a', 1)])
dict([1])
dict(**d)
namespace(a=1).a
namespace({'a': 2}).a
namespace(a=1).b
namespace(a=1)['a']
namespace(a=1)
namespace(1)
cycler('a', 'b').current
cycler()
joiner()
joiner('-')()
raise_exception('no')
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y, %A %B %j %p %I %y %a')
strftime_now('%-d/%-m %e %F %T %D %R %U %W %w %u %G-%V %C %%')
strftime_now('%f %z|%Z| %c | %x | %X | %h %n%t')
strftime_now('é猫 %Y')
strftime_now('')
strftime_now('%s') | length
strftime_now()
range(*[1, 4]) | list
range(*(1, 4, 2)) | list
dict(**{'x': 1})
'{}-{}'.format(*['a', 'b'])
'{x}'.format(**{'x': 5})
range(*5)
dict(**5)
range(1, stop=2)
'a'.upper(1)
'a' | upper(1)
'a' | replace(old='a', new='b')
'a' | replace('a', 'b', foo=1)
(l | map('abs'))[0]
(l | map('abs')) | length
(l | map('abs')) | first
(l | map('abs')) | last
(l | reverse) | first
true and 'x' or 'y'
1 if 1 else 2 if 2 else 3
(1 if 0 else 2) + 1
n + 1 | string
(n + 1) | string
-1 | abs
'a' ~ 'b' * 2
'a' ~ 1 + 2
1 ~ 2 + 3
2 * 3 ~ 4
not 1 == 2
n == 7 and m < 0
'a' 'b'.upper()
[1, 2][0]
{'a': 1}.a
{'a': {'b': 2}}['a']['b']
'abc'[1]
'abc'.upper().lower()[0]
(s | upper)[0:2]
(s)
((s))
(s, n)
s.split(' ')[0].lower()
s.split()|map('length')|list
[s, n]|string|length
9223372036854775807
-9223372036854775807
4611686018427387904 + 4611686018427387903
mixed
nested
messages[2]
people[0].items()|list
people[0]|length
l|list|length > 2
l is iterable and l is not mapping
messages[0].content|trim
messages[1].content.strip()
'<|im_start|>' ~ messages[0].role
"a" "b" ~ 'c'
loop
caller
varargs
u.find('猫')
u.split()
u.replace('猫', 'cat')
u|title
u|capitalize
u|upper|lower
'x'.join(u.split())
{'x': 1}.get('x') + 1
d.get('b') is not none
d['a'] | length
'ab' in ['ab']
'a' not in 'b' and 1
1 != 2 != 1
1 <= 1 <= 1
""" + '"""a"""'

# Whole templates.
TEMPLATES = [
    # white space
    "a\n", "a\n\n", "\na", "  {% if true %}\n  x\n  {% endif %}\n  y", "{% if true %}\r\nx\r\n{% endif %}\r\ny\r\n",
    "a {%- if true %} b {% endif -%} c", "a {{- 1 -}} b", "a\n{{ 1 }}\nb\n", "  {{ 1 }}\n", "a {%+ if true %} b{% endif +%}\nc",
    "    {%+ if true %}x{% endif %}", "a\n  {# c #}\nb", "a {#- c -#} b", "a\n\n  {%- set x = 1 -%}\n\n b", "{# a\nb #}\nx",
    "x  {% set a = 1 %}  y\n  {% set a = 2 %}  z", "{% set a = 1 %}\n\n\n{{ a }}", "\t{% if true %}\n\tx\n\t{% endif %}\n",
    "{%if true%}x{%endif%}", "{{1}}{{2}}", "{{-1}}", "{{+1}}", "{{ -1 }}", "{{ {'a': {'b': 1}} }}", "{{ {'a':{'b':1}}['a']['b']}}",
    "{% raw %}{{ x }}{% endraw %}", "a\n{% raw %}\n  {% if %}\n{% endraw %}\nb", "{%- raw -%}  x  {%- endraw -%}  y", "  {% raw %} x {% endraw %}\n y",
    "{ { x } }", "{", "{{ '{' }}", "}}", "%}", "#}", "a { b", "{{ '}}' }}", "{# {{ x }} #}y", "a{# unclosed", "{{ unclosed", "{% unclosed", "{% raw %} x",
    "{% if true -%}\n  x\n{%- endif %}\ny", "\u00a0{%- if true %}x{% endif %}", "x \u3000{{- 1 }}", "a\r\nb\rc", "{{ 'a\r\nb' }}", "a{{ 1 }}\n{% if true %}\nb\n{% endif %}\n\n",
    "{%- for m in messages %}\n{{- m.role }}\n{%- endfor %}", "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n", "  {% for i in [1,2] -%}\n  {{ i }}\n  {%- endfor %}  \nx",
    "{{ 1 }}\n\n{{ 2 }}", "{{ 1 -}}\n\n{{ 2 }}", "{#- x #}\n a", "a {#- x +#}\n b", "x{%+ set a = 1 %}\ny", "\n\n{% if true %}\n\na\n\n{% endif %}\n\n",
    # if
    "{% if n %}a{% elif z %}b{% else %}c{% endif %}", "{% if z %}a{% elif n %}b{% else %}c{% endif %}", "{% if z %}a{% elif z %}b{% else %}c{% endif %}",
    "{% if z %}a{% endif %}", "{% if n %}{% if z %}a{% else %}b{% endif %}{% endif %}", "{% if n %}a", "{% endif %}", "{% if %}a{% endif %}", "{% if n %}a{% else %}b{% elif z %}c{% endif %}",
    "{% if n == 7 and s is string or fail() %}a{% endif %}", "{% if not messages %}a{% else %}b{% endif %}", "{% if x.y is defined %}a{% endif %}", "{% if (n) %}a{% endif %}", "{% if 1, 2 %}a{% endif %}",
    "{% if n if t else z %}a{% endif %}",
    # for
    "{% for i in l %}{{ i }},{% endfor %}", "{% for i in e %}x{% else %}empty{% endfor %}", "{% for i in l %}x{% else %}empty{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for c in 'aé猫' %}{{ c }}-{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }} {% endfor %}", "{% for i in l if i > 9 %}x{% else %}none{% endfor %}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [1] %}x{% endfor %}", "{% for a, b in [(1, 2, 3)] %}x{% endfor %}", "{% for i in 5 %}x{% endfor %}", "{% for i in none %}x{% endfor %}",
    "{% for i in undefined_name %}x{% else %}e{% endfor %}", "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1,1,2,2,1] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}", "{% for i in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{{ loop.depth }}{% endfor %}|{{ loop.index }};{% endfor %}",
    "{% for i in nested recursive %}{{ loop.depth }}{% if i is iterable and i is not string and i is not mapping %}[{{ loop(i) }}]{% else %}{{ i }}{% endif %}{% endfor %}", "{% for i in l %}{{ loop(l) }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% break %}{% else %}e{% endfor %}", "{% break %}",
    "{% for i in l %}{% for j in l %}{% break %}{% endfor %}{{ i }}{% endfor %}", "{{ loop.index }}", "{% for i in l %}{% endfor %}{{ i }}", "{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% for i in l %}{% set ns = namespace(a=i) %}{{ ns.a }}{% endfor %}", "{% for loop in l %}x{% endfor %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}",
    "{% for i in l|sort %}{{ i }}{% endfor %}", "{% for i in l[1:] %}{{ i }}{% endfor %}", "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}", "{% for i in l if loop.first %}x{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for i in [1,2,3,4] if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}", "{% for i in l if i != 1 %}{{ loop.length }}{{ loop.last }}{{ loop.revindex }} {% endfor %}",
    "{% for i in l|map('string') %}{{ loop.length }}{{ i }}{% endfor %}", "{% for i in l %}{{ loop.foo }}{% endfor %}", "{% for x in l %}{% for x in 'ab' %}{{ x }}{% endfor %}{{ x }}{% endfor %}",
    "{% for m in messages %}{% if loop.first and m.role == 'system' %}S{% continue %}{% endif %}{{ m['role'] }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for i in l %}{{ i }}", "{% for i l %}x{% endfor %}", "{% for i in %}x{% endfor %}", "{% for 1 in l %}x{% endfor %}",
    "{% for k, v in d %}x{% endfor %}", "{% for k, v in {'ab': 1} %}{{ k }}{{ v }}{% endfor %}", "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", "{% for i in l recursive %}{{ i }}{% endfor %}", "{% for i in [[1,[2]],3] recursive %}{{ loop(i) if i is sequence else i }}@{{ loop.depth0 }} {% endfor %}",
    "{% for g in people|groupby('age') %}{{ g.grouper }}:{% for p in g.list %}{{ p.name }}{% endfor %};{% endfor %}", "{% for age, ps in people|groupby('age') %}{{ age }}{{ ps|length }}{% endfor %}", "{% for row in l|batch(2, '-') %}{{ row|join }}|{% endfor %}",
    "{% for i in l %}{% if loop.index0 is divisibleby 2 %}{{ i }}{% endif %}{% endfor %}", "{% for i in [3] %}{% set i = 5 %}{{ i }}{% endfor %}", "{% for i in l %}{{ x }}{% set x = i %}{% endfor %}",
    # set
    "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x {{ n }}{% endset %}[{{ a }}]", "{% set a | upper | replace('X', 'y') %}x{% endset %}{{ a }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% set ns.a = 1 %}", "{% set d.a = 1 %}", "{% set a.b.c = 1 %}", "{% set ns = namespace(a=1) %}{% set ns.a %}block{% endset %}{{ ns.a }}", "{% set true = 1 %}", "{% set a = %}", "{% set 1 = 2 %}",
    "{% if t %}{% set q = 1 %}{% endif %}{{ q }}", "{% if fa %}{% set s = 1 %}{% endif %}{{ s }}", "{% if fa %}{% set qq = 1 %}{% endif %}{{ qq is defined }}", "{% set a = a is defined %}{{ a }}", "{% set s = s ~ '!' %}{{ s }}", "{% set x = x + 1 %}", "{% set a = namespace(b=namespace(c=3)) %}{{ a.b.c }}",
    "{% set ns = namespace(a=1) %}{% set x, ns.a = 5, 6 %}{{ x }}{{ ns.a }}", "{% set messages = messages[1:] %}{{ messages|length }}", "{% set a = 1 if fa %}{{ a is defined }}", "{% set a = b = 1 %}", "{% set a %}{% set b = 1 %}{% endset %}{{ b }}", "{% set a='x'|upper %}{{a}}",
    # macros
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=4, a=5) }} {{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ f(1, 2, 3) }}", "{% macro f(a) %}{{ kwargs }}{% endmacro %}{{ f(1, b=2) }}{{ f(a=1) }}", "{% macro f(a, a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}x{{ n }}{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f() %}{{ caller }}{% endmacro %}{{ f() }}", "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
    "{% macro f(caller) %}{{ caller() }}{% endmacro %}{% call f() %}z{% endcall %}", "{% macro f(x, y) %}{{ caller(x + y) }}{% endmacro %}{% call(r) f(1, 2) %}={{ r }}{% endcall %}", "{% macro f() %}a{% endmacro %}{{ f }}", "{% macro f() %}a{% endmacro %}{{ f() | upper }}{{ f() + 'b' }}{{ f() is string }}", "{% macro f(a, b) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}",
    "{% macro f() %}{{ s }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ q }}{% endmacro %}{% set q = 1 %}{{ f() }}{% set q = 2 %}{{ f() }}", "{% macro f() %}{% set q = 5 %}{{ q }}{% endmacro %}{% set q = 1 %}{{ f() }}{{ q }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}", "{% macro f(a=n) %}{{ a }}{% endmacro %}{{ f() }}",
    "{% macro f(l) %}{% for i in l %}{{ i if i is not sequence else f(i) }}{% endfor %}{% endmacro %}{{ f([1, [2, [3]]]) }}", "{% macro f(ns) %}{% set ns.x = 9 %}{% endmacro %}{% set ns = namespace(x=1) %}{{ f(ns) }}{{ ns.x }}", "{% macro f() %}\n  a\n{% endmacro %}\n[{{ f() }}]", "{% macro f() -%}\n  a\n{%- endmacro %}\n[{{ f() }}]",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f(x) %}[{{ x }}]{% endmacro %}{{ [1, 2] | map('string') | map('upper') | join(f(0)) }}", "{{ f() }}{% macro f() %}x{% endmacro %}", "{% if t %}{% macro f() %}x{% endmacro %}{% endif %}{{ f() }}",
    "{% macro f(**kw) %}{% endmacro %}", "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}", "{% macro f(a=none) %}{{ a }}{% endmacro %}{{ f() }}{{ f(undefined_name) }}", "{% macro f(a) %}{{ a + 1 }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f() %}{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}{% endmacro %}{{ f() }}", "{% for i in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}o{% endmacro %}{{ outer() }}", "{% macro m() %}{% endmacro %}{{ m() is string }}{{ m()|length }}",
    "{% macro render(x, indent=0) %}{% if x is mapping %}{% for k, v in x.items() %}{{ '  ' * indent }}{{ k }}:\n{{ render(v, indent + 1) }}{% endfor %}{% else %}{{ '  ' * indent }}{{ x }}\n{% endif %}{% endmacro %}{{ render({'a': {'b': 1}, 'c': 2}) }}",
    # found by comparing
    "{% for i in l %}{% continue %}{% else %}e{% endfor %}", "{% for i in l %}{% if i == 3 %}{% continue %}{% endif %}{{ i }}{% else %}e{% endfor %}", "{% with loop = 1 %}{{ loop }}{% endwith %}", "{% set loop = 1 %}{{ loop }}", "{% for i in l %}{% with loop = 1 %}{% endwith %}{% endfor %}", "{% macro f(loop) %}{{ loop }}{% endmacro %}{% for i in l %}{{ f(i) }}{% endfor %}",
    "{% macro f(caller=none) %}{{ caller() if caller else 'n' }}{% endmacro %}{{ f() }}{% call f() %}c{% endcall %}", "{% macro f(caller) %}x{% endmacro %}{{ f(1) }}",
    "{{ '{:.3}|{:.3}|{:.3}|{:.2}|{:.1}|{:.5}'.format(123.0, 12.0, 0.00001234, 99.9, 0.5, 1e-4) }}", "{{ '{:g}|{:g}|{:#g}|{:n}'.format(1e15, 123456789, 1.5, 1.5) }}", "{{ '{:010.3f}|{:+010d}|{:<010d}|{:x<5}|{:>010}'.format(3.14159, 5, 5, 'a', 'b') }}",
    # how chat templates are written
    "{% macro type_of(p) %}{% if p.type is string %}{{ p.type }}{% elif p.type is iterable %}{{ p.type | join(' | ') }}{% else %}any{% endif %}{% endmacro %}{{ type_of({'type': 'string'}) }},{{ type_of({'type': ['a', 'b']}) }},{{ type_of({}) }}",
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n{{ ns.last_query_index }}",
    "{%- if '</think>' in 'a</think>b' %}{%- set reasoning = 'a</think>b'.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{%- endif %}{{ reasoning }}",
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + (message['content'] if message['content'] else '') + '<|im_end|>' + '\\n'}}{% endfor %}",
    "{{ '<start_of_turn>' + ('model' if messages[2].role == 'assistant' else messages[2].role) }}", "{%- set system_message = '' -%}{%- if messages[0]['role'] == 'system' -%}{%- set system_message = messages[0]['content'] | trim + '\\n\\n' -%}{%- endif -%}[{{ system_message }}]",
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  ~ content ~ ' ' + eos_token|default('</s>') }}{% endif %}{% endfor %}",
    "{%- set user_messages = messages | selectattr('role', 'equalto', 'user') | list -%}{%- for tool in tools -%}{%- set tool = tool.function -%}{{- '{\"type\": \"function\", \"function\": {' -}}{%- for key, val in tool.items() if key != 'return' -%}{%- if val is string -%}{{- '\"' + key + '\": \"' + val + '\"' -}}{%- else -%}{{- '\"' + key + '\": ' + val|tojson -}}{%- endif -%}{%- if not loop.last -%}{{- ', ' -}}{%- endif -%}{%- endfor -%}{{- '}}' -}}{%- endfor -%}{{ user_messages|length }}",
    "{%- for tool_call in messages[2].tool_calls %}{%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}{{- '{\"name\": \"' }}{{- tool_call.name }}{{- '\", \"arguments\": ' }}{{- tool_call.arguments | tojson }}{{- '}' }}{%- endfor %}", "{% for k, v in messages[2].tool_calls[0].function.arguments|items %}<{{ k }}>{{ v if v is string else v | tojson | safe }}</{{ k }}>{% endfor %}",
    "{{ (messages | last).role }}{{ messages[-1]['role'] == 'tool' }}", "{{ messages | map(attribute='content') | select('string') | map('trim') | join('/') }}", "{{ messages | map(attribute='content') | select('string') | map('length') | sum }}", "{{ messages | rejectattr('role', 'in', ['system', 'tool']) | map(attribute='role') | list }}", "{{ {'role': 'user'} in [{'role': 'user'}] }}", "{{ messages[0].items() | list | first | first }}", "{{ messages[0] | dictsort | map('last') | join }}", "{%- for m in messages -%}{{ loop.index ~ '/' ~ loop.length }}{{ ',' if not loop.last else '.' }}{%- endfor -%}",
    "{% for m in messages %}{% if m.content is none %}N{% elif m.content is not string %}?{% else %}{{ m.content | length }}{% endif %}{% endfor %}", "{% for m in messages if m.role != 'system' %}{% if loop.first %}F{% endif %}{{ m.role[0] }}{% if loop.last %}L{% endif %}{% endfor %}", "{% set counts = namespace(user=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set counts.user = counts.user + 1 %}{% endif %}{% endfor %}{{ counts.user }}", "{{ messages[1].content.split('\"')[1] }}", "{{ '%s' % messages[1].content | e }}", "{{ ('a' ~ messages[0].content).strip() ~ '|' }}",
    # other blocks
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% filter nope %}x{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}",
    "{% with a = s %}{% set s = 2 %}{{ a }}{{ s }}{% endwith %}{{ s }}", "{% generation %}a{{ s }}{% endgeneration %}b", "{% for m in messages %}{% if m.role == 'system' %}{% generation %}{{ m.content }}{{ loop.index }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}{% endif %}{% endfor %}", "{%- generation -%}\n x \n{%- endgeneration -%}\n y", "{% generation %}x",
    "{% block a %}x{{ s }}{% endblock %}", "{% block a %}x{% endblock a %}y", "{% print 1, 'a' %}", "{% print s %}", "{% autoescape false %}<{{ '<' }}{% endautoescape %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% from 'x' import y %}", "{% nope %}", "{% do l.append(1) %}", "{% %}", "{{ }}", "{{ 1 2 }}", "{{ a.1b }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ {1 }}", "{{ 1) }}", "{{ 'a }}", "{{ a[ }}", "{{ a[] }}", "{{ a. }}", "{{ | upper }}", "{{ a | }}", "{{ a is }}", "{{ f(a=1, 2) }}", "{{ f(**d, *l) }}", "{{ f(a=1, a=2) }}", "{{ $ }}", "{{ a ? b }}", "{{ a && b }}", "{{ !a }}", "{{ a = 1 }}", "{{ a := 1 }}", "{{ not }}", "{{ if }}", "{{ 1 if }}", "{{ in }}", "{{ a in }}", "{{ ; }}", "{{ a; b }}", "{{ a: b }}",
    "{% for i in l %}{{ i }}{% endif %}", "{% if n %}{% endfor %}", "{% macro %}{% endmacro %}", "{% macro f %}{% endmacro %}", "{% call f() %}x{% endcall %}", "{% set x %}", "{% else %}", "{% if n %}a{% endif foo %}", "{% filter %}x{% endfilter %}", "{{ x is defined }}{{ x.y is defined }}",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set j = joiner() %}{{ j() }}a{{ j() }}b", "{% if fa %}{{ n | nope }}{% endif %}x", "{% if fa %}{% for i in l %}{{ i | nope }}{% endfor %}{% endif %}x", "{% if t %}{{ n | nope }}{% endif %}x", "{% if fa %}{{ n is nope }}{% endif %}x", "{% for i in e %}{{ i | nope }}{% endfor %}", "{% macro f() %}{{ 1 | nope }}{% endmacro %}", "{% set it = l | map('string') %}{{ it | list }}{{ it | list }}", "{% set it = l | map('string') %}{{ it | first }}{{ it | list }}", "{% set it = l | map('string') %}{% if it %}y{% endif %}{% for i in it %}{{ i }}{% break %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% set ns = namespace(m={}) %}{% for i in l %}{% set ns.m = dict(ns.m, **{i|string: i}) %}{% endfor %}{{ ns.m }}", "{% set _ = ns.append(1) %}", "{% set _ = l.append(1) %}{{ l }}", "{{ raise_exception('System role ' ~ 'not supported') }}", "{% if messages[0].role == 'system' %}{{ raise_exception('x') }}{% endif %}",
    "{% set x = {'a': 1} %}{% set y = dict(x, a=2) %}{{ x.a }}{{ y.a }}", "{% for k, v in {'x': 1, 'y': [1,2]}.items() %}{{ k }}={{ v|tojson }}{{ ', ' if not loop.last }}{% endfor %}", "{{ '\\n'.join(['a', 'b']) }}", "{{ \"\\\"\" }}", "{{ '\\\\n' }}", "{{ 'a' }}{# c #}\n{{ 'b' }}", "{{ messages | map(attribute='role') | unique | join(',') }}", "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + (m['content'] or '') + '<|end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ loop.index0 }}{% endif %}{% endfor %}", "{% set loop_messages = messages[1:] if messages[0]['role'] == 'system' else messages %}{{ loop_messages|length }}", "{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{{ index }}{{ m.role }} {% endfor %}", "{{ messages[2].tool_calls|map(attribute='function')|map(attribute='name')|list }}", "{% for tc in messages[2].tool_calls %}{{ tc.function.arguments | tojson }}{{ tc.function.arguments is mapping }}{% endfor %}", "{{ '%s: %s' % (messages[0].role, messages[0].content | trim) }}",
    "{% set content = messages[3].content %}{% if content is string %}{{ content }}{% elif content is iterable %}{% for c in content %}{{ c.text }}{% endfor %}{% endif %}", "{{ 'a\\tb' | tojson }}{{ '\\u2028' | tojson }}", "{{ messages|tojson }}", "{{ tools|tojson(indent=4) }}", "{{ [tools[0].function.name, 'x']|join(':') }}", "{{ (tools or [])|length }}{{ (documents or [])|length }}", "{{ documents|length }}{{ documents }}", "{% if tools is not none and tools|length > 0 %}T{% endif %}", "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools is none }}", "{% if not documents is defined %}{% set documents = none %}{% endif %}{{ documents }}",
    "{{ x['a'] if x is defined else 'd' }}", "{% set date_string = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' %}{{ date_string }}", "{{ enable_thinking is defined and enable_thinking is false }}", "{% if (enable_thinking | default(true)) %}think{% endif %}", "{% set ns = namespace(a=1) %}{{ ns }}", "{{ ns.a.b }}", "{{ namespace }}", "{{ d.items() }}{{ d.keys() }}{{ d.values() }}", "{{ range(3) }}{{ range(0, 6, 2) }}", "{{ (1, 'a', none, 1.5, true) }}", "{{ {'a': [1, {'b': (2,)}]} }}", "{{ ['é', '\\u200b', 'a\\'b'] }}",
]

DEPTH = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"


def main():
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else (
        pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "jinja_cases.jsonl")
    environment = make_environment()
    sources = []
    pending = ""
    for line in EXPRESSIONS.split("\n"):
        line = pending + line
        if line.endswith("\\"):  # a string literal continued on the next line
            pending = line + "\n"
            continue
        pending = ""
        if line:
            sources.append("{{ " + line + " }}")
    sources += TEMPLATES + [DEPTH]
    lines = [{"context": CONTEXT}]
    for source in sources:
        case = {"template": source}
        try:
            case["rendered"] = environment.from_string(source).render(**CONTEXT)
            if " at 0x" in case["rendered"] or "<generator" in case["rendered"] or "<jinja2" in case["rendered"] \
                    or "<function" in case["rendered"] or "<built-in" in case["rendered"] or "<class" in case["rendered"]:
                continue  # the address of a Python object
        except RecursionError:
            case["error"] = "RecursionError"
        except Exception as error:  # whatever it is, the interpreter must refuse too
            case["error"] = type(error).__name__
        lines.append(case)
    output.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(lines) - 1} cases, {sum('error' in line for line in lines)} of them errors")


if __name__ == "__main__":
    main()
