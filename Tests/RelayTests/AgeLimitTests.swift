// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

@testable import Relay
@testable import Store

@Suite struct AgeLimitTests {
  private static let wall = Moment(milliseconds: 1_795_000_000_000, trusted: true)

  private func passes(
    _ limit: AgeLimit, _ fields: String, ago seconds: Int64 = 0, trusted: Bool = true,
    _ times: JournalTimes = JournalTimes(), kind: EventKind = .message
  ) -> Bool {
    let event = JournalEvent(
      seq: 7, at: Self.wall.milliseconds - seconds * 1000, trusted: trusted, kind: kind.rawValue,
      body: Array("{\(fields)}".utf8))
    return limit.passes(
      event, AgeLimit.Present(wall: Self.wall, now: 5_000_000, times: times))
  }

  @Test func `waiting time counts as age, and a strict limit excludes messages of unknown age`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true), log = AgeLimit(oldest: 300)
    #expect(passes(bot, "") && passes(log, ""))
    #expect(!passes(bot, "\"waited\":true") && passes(log, "\"waited\":true"))
    #expect(!passes(bot, "\"waited\":true,\"age_s\":5"), "a sender may claim any time")
    #expect(passes(bot, "\"waited\":true,\"waited_s\":20"), "a link that came back at once")
    #expect(!passes(bot, "\"waited\":true,\"waited_s\":20,\"age_s\":400"), "a room's old post")
    #expect(!passes(bot, "\"waited\":true,\"waited_s\":280", ago: 30), "the time here counts as well")
    #expect(!passes(log, "\"waited\":true,\"waited_s\":10800"))
    #expect(passes(log, "\"waited\":true,\"waited_s\":10800,\"age_s\":200"))
    #expect(!passes(log, "\"waited\":true,\"age_s\":10800") && !passes(log, "\"age_s\":10800"))
    for number in ["9223372036854775807", "-9223372036854775808", "1e300"] {
      _ = passes(bot, "\"waited\":true,\"waited_s\":\(number),\"age_s\":\(number)", ago: 1)
    }
  }

  @Test func `without a limit only the mark of waiting counts`() {
    #expect(passes(AgeLimit(oldest: nil), "\"waited\":true,\"age_s\":99999", ago: 999_999))
    #expect(!passes(AgeLimit(oldest: nil, takesWaited: false), "\"waited\":true,\"age_s\":1"))
  }

  @Test func `an event's age goes by a trusted clock, or else by the time since the start of the program`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true)
    #expect(passes(bot, "", ago: 299) && !passes(bot, "", ago: 301))
    #expect(!passes(bot, "", ago: 1, trusted: false), "from before this program: nobody knows")
    #expect(passes(AgeLimit(oldest: 300), "", ago: 1, trusted: false))
    var times = JournalTimes()
    _ = times.comes(7, at: 4_800_000)
    #expect(passes(bot, "", ago: 999_999, trusted: false, times))
    times = JournalTimes()
    _ = times.comes(7, at: 4_000_000)
    _ = times.comes(8, at: 4_990_000)
    #expect(!passes(bot, "", ago: 1, trusted: false, times))
    #expect(passes(bot, "", ago: 999_999, kind: .gap))
  }

  @Test func `setting the clock does not change the age of events since the start of the program`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true)
    var times = JournalTimes()
    _ = times.comes(7, at: 4_990_000)
    #expect(passes(bot, "", ago: 86_400, times), "it is ten seconds old")
    #expect(passes(bot, "", ago: 30_000_000, times))
    times = JournalTimes()
    _ = times.comes(7, at: 4_000_000)
    _ = times.comes(8, at: 4_100_000)
    #expect(!passes(bot, "", ago: 0, times) && !passes(bot, "", ago: -86_400, times), "it is 900 s old at least")
  }

  @Test func `setting the clock while the program is away makes no event old, unless the machine restarted`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true)
    var times = JournalTimes(boot: "one")
    for seq in Int64(1)...7 { _ = times.comes(seq, at: 4_000_000 + seq * 140_000) }
    let again = JournalTimes(boot: "one", kept: times.kept)
    #expect(passes(bot, "", ago: 7200, again), "it is 20 s old")
    #expect(!passes(bot, "", ago: 7200, JournalTimes(boot: "two", kept: times.kept)))
    #expect(JournalTimes(boot: "", kept: "\n1:1") == JournalTimes())
    for seq in Int64(8)...100_000 { _ = times.comes(seq, at: 4_980_000 + seq * 10_000) }
    #expect(times.kept.utf8.count < 1000, "\(times.kept)")
    for kept in ["one", "one 5", "one x:y 3:4:5 9:1 8:2 10:0 :", "one 1:-9223372036854775808"] {
      _ = passes(bot, "", JournalTimes(boot: "one", kept: kept.replacing(" ", with: "\n")))
    }
  }

  @Test func `a message's age goes by the report of its gateway, not by the hub's clock`() throws {
    func sent(_ body: String) throws -> Int64 {
      ChannelUpdate.sent(1_795_000_000_000, try JSONValue(parsing: Array(body.utf8)))
    }
    #expect(try sent("{}") == 1_795_000_000_000)
    #expect(try sent("{\"at\":1794900000000,\"trusted\":true}") == 1_794_900_000_000, "it came to the hub late")
    #expect(try sent("{\"at\":5,\"trusted\":false}") == 1_795_000_000_000, "a clock that was not right")
    #expect(try sent("{\"at\":9999999999999,\"trusted\":true}") == 1_795_000_000_000)
    #expect(try sent("{\"waited_s\":3600}") == 1_794_996_400_000)
    for number in ["9223372036854775807", "-9223372036854775808"] {
      let body = "{\"at\":\(number),\"trusted\":true,\"waited_s\":\(number),\"age_s\":\(number)}"
      #expect(try sent(body) <= 1_795_000_000_000)
    }
  }

  /// `pause`: the milliseconds between two events, over `hours`.
  @Test(arguments: [(300, 1), (2000, 5), (3000, 240)] as [(Int64, Int64)])
  func `without a trusted clock an event's age is right to a twentieth, also in a long and busy journal`(
    pause: Int64, hours: Int64
  ) {
    var times = JournalTimes()
    let count = hours * 3_600_000 / pause
    for seq in 1...count { _ = times.comes(seq, at: seq * pause) }
    let now = count * pause
    var seq = count
    while seq > 0 {
      let event = JournalEvent(seq: seq, at: 0, trusted: false, kind: "message", body: [])
      let (age, told) = (now - seq * pause, (times.age(of: event, wall: Self.wall, now: now) ?? -1) * 1000)
      #expect((age - 1000...age + age / 20 + 2 * pause).contains(told), "an age of \(age) ms is computed as \(told)")
      seq -= max(1, (count - seq) / 3)
    }
  }

  @Test func `setting the clock back does not make the newest event young`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true)
    var times = JournalTimes()
    _ = times.comes(7, at: 4_400_000)
    // The message is ten minutes old.
    for seconds in [Int64(600), 301, 200, 0, -7200] { #expect(!passes(bot, "", ago: seconds, times), "\(seconds)") }
    #expect(!passes(bot, "", ago: -5), "from the future: nobody knows")
    #expect(passes(AgeLimit(oldest: 300), "", ago: -5))
  }

  @Test func `the stored times of a journal are bounded, and give bounds for each event's age`() {
    var times = JournalTimes()
    for seq in Int64(1)...5000 { _ = times.comes(seq, at: seq * 11_000) }
    func age(_ seq: Int64) -> Int64? {
      let event = JournalEvent(seq: seq, at: 0, trusted: false, kind: "message", body: [])
      return times.age(of: event, wall: Self.wall, now: 55_000_000)
    }
    #expect(age(5000) == 0 && age(4990) == 110 && age(1) == 54_989)
    #expect(age(0) == nil)
  }
}
