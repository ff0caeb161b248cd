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
    _ times: JournalTimes = JournalTimes(last: 99), kind: EventKind = .message
  ) -> Bool {
    let event = JournalEvent(
      seq: 7, at: Self.wall.milliseconds - seconds * 1000, trusted: trusted, kind: kind.rawValue,
      body: Array("{\(fields)}".utf8))
    return limit.passes(
      event, AgeLimit.Present(wall: Self.wall, now: MonotonicTime(seconds: 5000), times: times))
  }

  @Test func `what waited counts with the time that it waited, and who answers takes none of unknown age`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true), log = AgeLimit(oldest: 300)
    #expect(passes(bot, "") && passes(log, ""))
    #expect(!passes(bot, "\"waited\":true") && passes(log, "\"waited\":true"))
    #expect(!passes(bot, "\"waited\":true,\"age_s\":5"), "whoever sends may say any time")
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

  @Test func `without a limit only the wait counts`() {
    #expect(passes(AgeLimit(oldest: nil), "\"waited\":true,\"age_s\":99999", ago: 999_999))
    #expect(!passes(AgeLimit(oldest: nil, takesWaited: false), "\"waited\":true,\"age_s\":1"))
  }

  @Test func `the time in the journal counts by a clock that was right, else by one that cannot be set`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true)
    #expect(passes(bot, "", ago: 299) && !passes(bot, "", ago: 301))
    #expect(!passes(bot, "", ago: 1, trusted: false), "from before this program: nobody knows")
    #expect(passes(AgeLimit(oldest: 300), "", ago: 1, trusted: false))
    var times = JournalTimes(last: 6)
    times.committed(through: 7, now: MonotonicTime(seconds: 4800))
    #expect(passes(bot, "", ago: 999_999, trusted: false, times))
    times = JournalTimes(last: 6)
    times.committed(through: 7, now: MonotonicTime(seconds: 4000))
    times.committed(through: 8, now: MonotonicTime(seconds: 4990))
    #expect(!passes(bot, "", ago: 1, trusted: false, times))
    #expect(passes(bot, "", ago: 999_999, kind: .gap))
  }

  @Test func `a clock that is set makes no event of this program's life older or younger`() {
    let bot = AgeLimit(oldest: 300, takesWaited: false, isStrict: true)
    var times = JournalTimes(last: 6)
    times.committed(through: 7, now: MonotonicTime(seconds: 4990))
    #expect(passes(bot, "", ago: 86_400, times), "it is ten seconds old")
    #expect(passes(bot, "", ago: 30_000_000, times))
    times = JournalTimes(last: 6)
    times.committed(through: 7, now: MonotonicTime(seconds: 4000))
    times.committed(through: 8, now: MonotonicTime(seconds: 4100))
    #expect(!passes(bot, "", ago: 0, times) && !passes(bot, "", ago: -86_400, times), "it is 900 s old at least")
  }

  @Test func `a message from elsewhere is as old as the other gateway says, not as the hub's clock`() throws {
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

  @Test func `times of a journal are bounded, and never make an event newer`() {
    var times = JournalTimes(last: 0)
    for seq in Int64(1)...5000 { times.committed(through: seq, now: MonotonicTime(seconds: Double(seq) * 11)) }
    func age(_ seq: Int64) -> Int64? {
      let event = JournalEvent(seq: seq, at: 0, trusted: false, kind: "message", body: [])
      return times.age(of: event, wall: Self.wall, now: MonotonicTime(seconds: 55_000))
    }
    #expect(age(5000) == 0 && age(4990) == 110 && age(1) == nil)
  }
}
