// SPDX-License-Identifier: MIT

import Alerts
import Companion
import Testing
import Timing

@testable import Gateway

/// The judges of nodes, each with its own time.
@Suite struct NodeCourseTests {
  private let settings = CareSettings()
  private let day: Int64 = 86_400_000

  private func isBad(_ reading: AlertReading) -> Bool { if case .bad = reading { true } else { false } }

  @Test func `one low reading is a transmission, two are an empty battery, and it has to rise by more than it fell`() {
    var course = BatteryCourse()
    #expect(!isBad(course.took(3390, at: 0, settings).low))
    #expect(!isBad(course.took(3500, at: 1, settings).low))
    #expect(!isBad(course.took(3390, at: 2, settings).low))
    #expect(course.took(3312, at: 3, settings).low == .bad(text: "the battery is low: 3.312 V", value: 3.312))
    #expect(course.took(3410, at: 4, settings).low == .between)
    #expect(course.took(3500, at: 5, settings).low == .well)
    #expect(course.took(0, at: 6, settings).low == .between, "a board without a measurement")
  }

  @Test func `a battery that falls for four days is told with its voltages, and one that only falls at night is not`() {
    var (solar, falling) = (BatteryCourse(), BatteryCourse())
    var told = 0
    for hour in Int64(0)..<(20 * 24) {
      let night = UInt16(abs(hour % 24 - 12) * 30)
      #expect(!isBad(solar.took(4000 - night, at: hour * 3_600_000, settings).falling))
      let reading = falling.took(4000 - night - UInt16(hour / 24) * 30, at: hour * 3_600_000, settings).falling
      if isBad(reading) { told += 1 }
      if hour == 5 * 24 {
        #expect(
          reading == .bad(text: "the battery has been falling for 4 days, from 4.000 V to 3.880 V", value: 3.88))
      }
    }
    #expect(told == 15 * 24)
    #expect(falling.took(4100, at: 20 * day, settings).falling == .well)
  }

  @Test func `a restart shows in an uptime that fell, or that lacks time, and not in an old counter that began again`()
  {
    var course = UptimeCourse()
    #expect(course.took(1000, at: 0) == nil)
    #expect(course.took(4600, at: 3_600_000) == nil)
    #expect(course.took(30, at: 7_200_000) == 4600)
    #expect(course.took(3000, at: 10_200_000) == nil)
    #expect(course.took(20_000, at: 100_000_000) == 3000, "it ran for longer than before, and yet not all the time")
    // Polls that were late, and a clock that is three percent slow.
    #expect(course.took(20_000 + 83_808, at: 100_000_000 + day) == nil)
    var old = UptimeCourse()
    #expect(old.took(4_294_000, at: 0) == nil)
    #expect(old.took(2633, at: 3_600_000) == nil, "2^32 milliseconds")
    #expect(old.took(100, at: 7_200_000) == 2633)
  }

  @Test func `a clock that was set wrong once is told apart from one that walks`() {
    var (lost, walking, late) = (ClockCourse(), ClockCourse(), ClockCourse())
    for half in Int64(0)..<40 {
      let at = half * day / 2
      // Every third advert comes two minutes late.
      let delay: Int64 = half % 3 == 0 ? 120 : 0
      _ = lost.took((half < 10 ? 0 : -7200) - delay, at: at, settings)
      _ = walking.took(half * 40 - delay, at: at, settings)
      #expect(!isBad(late.took(-delay * 3, at: at, settings)))
    }
    #expect(
      lost.kind == .constant
        && lost.words == "its clock is 2 h 2 min behind and does not walk: it was set wrong, or lost its time once")
    guard case .walking(let rate) = walking.kind else { Issue.record("\(walking.kind)"); return }
    #expect(abs(rate - 80) < 5)
    #expect(
      walking.words == "its clock is 24 min ahead and walks: it gains 80 s a day",
      "39 halves of a day, and a late advert")
    #expect(late.kind == .constant)
    #expect(lost.samples.count <= ClockCourse.most && walking.samples.count <= ClockCourse.most)
  }

  @Test func `the number of lost polls that means something depends on how many usually get lost`() {
    var (near, far) = (PollCourse(), PollCourse())
    for poll in 0..<600 {
      _ = near.polled("status", isAnswered: true, at: 0, wasTold: false, settings)
      _ = far.polled("status", isAnswered: poll % 3 != 0, at: 0, wasTold: false, settings)
    }
    #expect(near.enough(settings) == 4)
    #expect((11...14).contains(far.enough(settings)))
    for _ in 1...3 { #expect(!isBad(near.polled("status", isAnswered: false, at: 0, wasTold: false, settings))) }
    #expect(
      near.polled("status", isAnswered: false, at: 0, wasTold: false, settings)
        == .bad(text: "it has not answered 4 polls in a row (status)", value: 4))
    near.doubt(at: 0, settings)
    #expect(!isBad(near.polled("status", isAnswered: false, at: 0, wasTold: false, settings)))
    #expect(isBad(near.polled("status", isAnswered: false, at: 0, wasTold: false, settings)), "two further polls")
    #expect(near.polled("telemetry", isAnswered: true, at: 0, wasTold: true, settings) != .well)
    #expect(near.polled("status", isAnswered: true, at: 0, wasTold: true, settings) == .well)
  }

  @Test func `a record survives the disk, and a damaged one is begun anew`() throws {
    var record = NodeRecord()
    _ = record.battery.took(3300, at: day, settings)
    _ = record.uptime.took(77, at: day)
    _ = record.noise.took(-50, settings)
    _ = record.clock.took(-900, at: day, settings)
    _ = record.polls.polled("status", isAnswered: false, at: 5, wasTold: false, settings)
    record.heard.heard(at: 7, wasSilent: false)
    record.heard.heard(at: 7 + day, wasSilent: false)
    record.grouped = [.nodeNoisy]
    #expect(NodeRecord(record.json) == record)
    #expect(NodeRecord(Array("{\"days\":".utf8)) == nil)
    let absurd = #"{"low":-1,"days":[[1,99999]],"up":[-1,5],"heard":[1],"clock":[[9007199254740993,1]],"losses":-5}"#
    #expect(NodeRecord(Array(absurd.utf8))?.uptime.last == nil)
    let past = try #require(
      NodeRecord(Array(#"{"up":[5,-1],"heard":[-1,2,3,4,5],"missed":-1,"unanswered":{"status":2,"nonsense":9}}"#.utf8)))
    #expect(past.uptime.last == nil && past.heard.first == nil && past.polls.missedSince == nil)
    #expect(past.polls.unanswered == ["status": 2])
  }

  @Test(arguments: [Int64.max, .min, 1 << 60]) func `an absurd time of listening ends no program`(total: Int64) {
    var (listening, now) = (ListeningTime(total: total), MonotonicTime(seconds: 1))
    for _ in 0..<3 {
      now = now + .seconds(200)
      _ = listening.look(isListening: true, now: now)
    }
    #expect((0...(1 << 52)).contains(listening.total))
  }

  @Test(arguments: ["-9007199254740991", "9007199254740991", "-1", "9223372036854775807", "1e300"])
  func `a record with absurd numbers ends no program`(number: String) throws {
    let pair = "[\(number),\(number)]"
    let text =
      #"{"low":N,"days":[P,P,[N,4000],[N,3000]],"up":P,"loud":N,"heard":[N,N,N,N,N],"wrong":N,"clock":[P,P,P,P,P],"#
      + #""unanswered":{"status":N,"clock":N},"missed":N,"losses":N}"#
    let json = text.replacing("N", with: number).replacing("P", with: pair)
    var record = try #require(NodeRecord(Array(json.utf8)))
    for time in [0, day, 1 << 52] {
      _ = record.battery.took(3300, at: time, settings)
      _ = record.uptime.took(77, at: time)
      _ = record.noise.took(-50, settings)
      _ = record.clock.took(-900, at: time, settings)
      _ = (record.clock.words, record.clock.expected(at: time))
      record.heard.listenedAnew(at: time, atLeast: day)
      _ = record.heard.isSilent(at: time, atLeast: day)
      record.heard.heard(at: time, wasSilent: false)
      for isAnswered in [false, true] {
        _ = record.polls.polled("status", isAnswered: isAnswered, at: time, wasTold: false, settings)
      }
    }
    #expect(NodeRecord(record.json) != nil)
  }
}
