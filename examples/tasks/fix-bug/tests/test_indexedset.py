"""What IndexedSet must do. Sets have forty items and few removals, so that the holes are still there when they are used."""

import unittest

from observe import Raised, observe

HOLES = "s = IndexedSet(range(40))\nfor item in (3, 17, 30): s.remove(item)\n"
LEFT = [item for item in range(40) if item not in (3, 17, 30)]


class SliceAfterRemoval(unittest.TestCase):
    def check(self, *slices: str) -> None:
        answers = ", ".join(f"list(s[{each}])" for each in slices)
        expected = [eval(f"LEFT[{each}]", {"LEFT": LEFT}) for each in slices]
        self.assertEqual(observe(f"{HOLES}result = [{answers}]"), expected)

    def test_both_bounds(self) -> None:
        self.check("5:8", "1:20", "20:33", "10:10")

    def test_start_only(self) -> None:
        self.check("5:", "16:", "36:")

    def test_stop_only(self) -> None:
        self.check(":5", ":17", ":36")

    def test_negative_bounds(self) -> None:
        self.check("-5:", ":-30", "-12:-2", "5:-5")

    def test_bounds_beyond_the_ends(self) -> None:
        self.check("-100:5", "30:100", "-100:100")

    def test_step(self) -> None:
        self.check("::2", "4:30:3", "-20::4")

    def test_bounds_before_the_first_hole(self) -> None:
        self.check(":3", "0:2")

    def test_all(self) -> None:
        self.check(":")

    def test_iter_slice(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = list(s.iter_slice(4, 9))"), LEFT[4:9])

    def test_slice_is_an_indexed_set(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = type(s[5:8]).__name__"), "IndexedSet")

    def test_after_pop(self) -> None:
        left = [item for item in range(40) if item != 10]
        self.assertEqual(observe("s = IndexedSet(range(40))\ns.pop(10)\nresult = list(s[12:15])"), left[12:15])

    def test_after_set_operation(self) -> None:
        left = [item for item in range(40) if item not in (6, 25)]
        snippet = "s = IndexedSet(range(40))\ns -= {6, 25}\nresult = list(s[8:30])"
        self.assertEqual(observe(snippet), left[8:30])


class TooFarBelowZero(unittest.TestCase):
    def test_index(self) -> None:
        self.assertEqual(observe("result = IndexedSet('abc')[-5]"), Raised("IndexError"))

    def test_just_outside(self) -> None:
        self.assertEqual(observe("result = IndexedSet('abc')[-4]"), Raised("IndexError"))

    def test_index_with_holes(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = s[-38]"), Raised("IndexError"))

    def test_pop(self) -> None:
        self.assertEqual(observe("result = IndexedSet('abc').pop(-5)"), Raised("IndexError"))

    def test_pop_changes_nothing(self) -> None:
        snippet = "s = IndexedSet('abcde')\ntry: s.pop(-7)\nexcept IndexError: pass\nresult = list(s)"
        self.assertEqual(observe(snippet), list("abcde"))


class Unchanged(unittest.TestCase):
    def test_index(self) -> None:
        self.assertEqual(observe("s = IndexedSet('abc')\nresult = [s[0], s[2], s[-1], s[-3]]"), ["a", "c", "c", "a"])

    def test_index_after_removal(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = [s[i] for i in range(-37, 37)]"), LEFT + LEFT)

    def test_index_too_large(self) -> None:
        self.assertEqual(observe("result = IndexedSet('abc')[3]"), Raised("IndexError"))

    def test_index_too_large_after_removal(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = s[37]"), Raised("IndexError"))

    def test_index_must_be_an_integer(self) -> None:
        self.assertEqual(observe("result = IndexedSet('abc')['a']"), Raised("TypeError"))

    def test_slice_without_removal(self) -> None:
        snippet = "s = IndexedSet(range(20))\nresult = [list(s[2:9]), list(s[-4:]), list(s[:3]), list(s[1:12:5])]"
        self.assertEqual(observe(snippet), [list(range(2, 9)), [16, 17, 18, 19], [0, 1, 2], [1, 6, 11]])

    def test_negative_step_without_removal(self) -> None:
        snippet = "s = IndexedSet(range(10))\nresult = [list(s[::-1]), list(s[2:4:-1])]"
        self.assertEqual(observe(snippet), [[9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [7, 6]])

    def test_index_of_item(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = [s.index(4), s.index(39)]"), [3, 36])

    def test_pop_last(self) -> None:
        self.assertEqual(observe("s = IndexedSet('abc')\nresult = [s.pop(), list(s)]"), ["c", ["a", "b"]])

    def test_pop_in_the_middle(self) -> None:
        self.assertEqual(observe(f"{HOLES}result = [s.pop(5), len(s), 6 in s]"), [6, 36, False])

    def test_pop_negative(self) -> None:
        self.assertEqual(observe("s = IndexedSet('abcd')\nresult = [s.pop(-2), list(s)]"), ["c", ["a", "b", "d"]])

    def test_pop_from_empty(self) -> None:
        self.assertEqual(observe("result = IndexedSet().pop()"), Raised("IndexError"))

    def test_order_and_equality(self) -> None:
        snippet = "result = [list(IndexedSet('banana')), IndexedSet('ab') == {'a', 'b'}, IndexedSet('ab') == IndexedSet('ba')]"
        self.assertEqual(observe(snippet), [["b", "a", "n"], True, False])

    def test_set_operations(self) -> None:
        snippet = "a, b = IndexedSet('abcd'), {'b', 'd', 'x'}\nresult = [list(a & b), list(a - b), sorted(a | b), sorted(a ^ b)]"
        self.assertEqual(observe(snippet), [["b", "d"], ["a", "c"], list("abcdx"), ["a", "c", "x"]])

    def test_sort_and_reverse_after_removal(self) -> None:
        snippet = f"{HOLES}s.reverse()\nfirst = list(s)\ns.sort()\nresult = [first, list(s)]"
        self.assertEqual(observe(snippet), [LEFT[::-1], LEFT])
