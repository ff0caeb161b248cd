// SPDX-License-Identifier: MIT

import Testing
import Timing

/// A clock that was set judges nobody until something shows that it is right.
@Suite struct ClockProofTests {
  private static let (hour, day): (Int64, Int64) = (3_600_000, 86_400_000)
  private static let wall: Int64 = 1_800_000_000_000

  /// A machine that was booted at `wall`, `now` milliseconds ago.
  private struct Machine {
    var proof = ClockProof()
    var now: Int64 = 60_000
    var error: Int64 = 0
    var isSynchronised = true

    mutating func look(after passed: Int64 = 0) -> ClockProof.Doubt? {
      now += passed
      proof.look(wall: wall + now + error, sinceBoot: now, isSynchronised: isSynchronised)
      return proof.doubt
    }
  }

  @Test func `a clock that was set is doubted at once, and believed when it is back`() {
    var machine = Machine()
    #expect(machine.look() == nil)
    machine.error = 4000
    #expect(machine.look(after: 1000) == nil, "leap seconds and small corrections")
    for error in [Self.hour, -Self.hour, 6000, 31_536_000_000] {
      machine.error = error
      #expect(machine.look(after: 1000) == .moved(error))
      #expect(machine.look(after: 20 * Self.hour) == .moved(error))
    }
    machine.error = 100
    #expect(machine.look(after: 1000) == nil)
  }

  @Test func `a clock that others agree with is believed, and one that they contradict never is`() {
    var machine = Machine()
    _ = machine.look()
    machine.error = Self.hour
    #expect(machine.look() == .moved(Self.hour))
    machine.proof.heard(.contradicts, from: 1)
    #expect(machine.look(after: 30 * Self.day) == .moved(Self.hour), "one is enough to hold it")
    machine.proof.heard(.agrees, from: 2)
    machine.proof.heard(.agrees, from: 2)
    #expect(machine.look() == .moved(Self.hour), "one clock has one vote")
    machine.proof.heard(.agrees, from: 3)
    #expect(machine.look() == nil, "two against one")
    machine.error = 0
    #expect(machine.look() == .moved(-Self.hour), "from now on the new time is the one that was proven")
  }

  @Test func `without a clock that knows better, a day of synchronised time is enough`() {
    var machine = Machine()
    _ = machine.look()
    machine.error = Self.hour
    #expect(machine.look() == .moved(Self.hour))
    #expect(machine.look(after: Self.day / 2) == .moved(Self.hour))
    machine.isSynchronised = false
    #expect(machine.look(after: Self.day) == .moved(Self.hour), "not the time in which it was not synchronised")
    machine.isSynchronised = true
    #expect(machine.look() == .moved(Self.hour))
    #expect(machine.look(after: Self.day - 1) == .moved(Self.hour))
    #expect(machine.look(after: 1) == nil)
  }

  @Test func `a person's word is enough`() {
    var machine = Machine()
    _ = machine.look()
    machine.error = Self.hour
    #expect(machine.look() == .moved(Self.hour))
    machine.proof.confirm(wall: Self.wall + machine.now + machine.error, sinceBoot: machine.now)
    #expect(machine.look(after: 5) == nil && !machine.proof.wantsVotes)
  }

  @Test func `after a start of the machine it is believed until a clock contradicts, and unless more agree`() {
    var machine = Machine()
    #expect(machine.look() == nil && machine.proof.wantsVotes)
    machine.proof.heard(.contradicts, from: 1)
    #expect(machine.look() == .contradicted(1))
    #expect(machine.look(after: 2 * Self.day) == .contradicted(1))
    machine.proof.heard(.agrees, from: 2)
    #expect(machine.look() == .contradicted(1), "one against one")
    machine.proof.heard(.agrees, from: 3)
    #expect(machine.look() == nil && !machine.proof.wantsVotes)
    machine.proof.heard(.contradicts, from: 4)
    #expect(machine.look() == nil, "the clock has stood still since, so it is the other that was set")
  }

  @Test func `a restart of the program forgets no doubt, and absurd times and stored forms end nothing`() {
    var machine = Machine()
    _ = machine.look()
    machine.error = Self.hour
    _ = machine.look()
    machine.proof = ClockProof(kept: machine.proof.kept)
    #expect(machine.look() == .moved(Self.hour))
    for kept: [Int64] in [[], [1], [.min, 1], [.max, 0, .min], [.min, 7, .max], [1, 2, 3, 4]] {
      var proof = ClockProof(kept: kept)
      for (wall, boot) in [(Int64.min, Int64.max), (.max, .min), (0, 0), (.max, .max)] {
        proof.look(wall: wall, sinceBoot: boot, isSynchronised: true)
        proof.heard(.agrees, from: 1)
        proof.heard(.agrees, from: 2)
        _ = (proof.doubt, proof.kept)
      }
    }
  }
}
