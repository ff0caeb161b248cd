// SPDX-License-Identifier: MIT

import Alerts
import Testing
import Timing

@Suite struct AlertBoardTests {
  private let radio = AlertSubject(.radioLost)
  private static let bad = AlertReading.bad(text: "gone")

  private func board(begins: Int64 = 120, ends: Int64 = 300) -> AlertBoard {
    var settings = AlertSettings(AlertRule.ofGateways)
    settings.times[.radioLost] = AlertTimes(begins: .seconds(begins), ends: .seconds(ends))
    return AlertBoard(settings)
  }

  private func time(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  @Test func `an alert begins after its time, has its first moment, and ends after being well for its time`() {
    var board = board()
    #expect(board.due == nil)
    #expect(board.read(radio, Self.bad, now: time(10)) == nil)
    #expect(board.due == time(130))
    #expect(board.read(radio, Self.bad, now: time(129.9)) == nil && board.open.isEmpty)
    let begins = AlertChange.begins(radio, text: "gone", value: nil, since: time(10), returns: 0)
    #expect(board.timedOut(now: time(130)) == [begins])
    #expect(board.due == nil && board.open == [radio], "a lasting problem needs no timer")
    #expect(board.read(radio, Self.bad, now: time(5000)) == nil)
    #expect(board.read(radio, .well, now: time(6000)) == nil)
    #expect(board.due == time(6300))
    #expect(board.timedOut(now: time(6299)).isEmpty)
    #expect(board.timedOut(now: time(6300)) == [.ends(radio)])
    #expect(board.due == nil && board.open.isEmpty)
  }

  @Test func `the first whole alert among changes is one that begins and ends there`() {
    let other = AlertSubject(.clockWrong)
    let begins = AlertChange.begins(radio, text: "gone", value: nil, since: time(0), returns: 0)
    let changes = [AlertChange.ends(other), begins, .ends(other), .ends(radio), begins]
    let whole = AlertChange.firstWhole(in: changes)
    #expect(whole?.begin == 1 && whole?.end == 3)
    #expect(AlertChange.firstWhole(in: [.ends(radio), begins]) == nil)
  }

  @Test func `a problem that ends before its time causes no alert`() {
    var board = board()
    for second in stride(from: 0.0, to: 7200, by: 100) {
      #expect(board.read(radio, Self.bad, now: time(second)) == nil)
      let other = second.truncatingRemainder(dividingBy: 200) == 0 ? AlertReading.well : .between
      #expect(board.read(radio, other, now: time(second + 60)) == nil)
      #expect(board.due == nil)
    }
  }

  @Test func `a reading between bad and well keeps an alert open, and restarts the time before its end`() {
    var board = board(begins: 0)
    #expect(board.read(radio, Self.bad, now: time(0)) != nil)
    #expect(board.read(radio, .well, now: time(10)) == nil)
    #expect(board.read(radio, .between, now: time(300)) == nil)
    #expect(board.due == nil && board.isOpen(radio))
    #expect(board.read(radio, .well, now: time(400)) == nil)
    #expect(board.timedOut(now: time(699)).isEmpty && board.timedOut(now: time(700)) == [.ends(radio)])
  }

  @Test func `each return within a day doubles the time before an alert ends, up to a day; a day without forgets it`() {
    var (board, now) = (board(begins: 0, ends: 300), time(0))
    for turn in 0..<12 {
      guard case .begins(_, _, _, _, let returns) = board.read(radio, Self.bad, now: now) else {
        Issue.record("turn \(turn): nothing began")
        return
      }
      #expect(returns == turn)
      #expect(board.read(radio, .well, now: now) == nil)
      let wait = min(Int64(300) << turn, 86_400)
      #expect(board.due == now + .seconds(wait))
      now = now + .seconds(wait)
      #expect(board.timedOut(now: now) == [.ends(radio)])
      now = now + .seconds(1)
    }
    now = now + .seconds(86_400)
    let again = AlertChange.begins(radio, text: "gone", value: nil, since: now, returns: 0)
    #expect(board.read(radio, Self.bad, now: now) == again)
  }

  /// Readings at any rhythm, or none, cause only few alerts a day; begins and ends alternate, and none comes before its time.
  @Test(arguments: 0..<60 as Range<UInt64>)
  func `no sequence of readings makes alerts flap`(_ seed: UInt64) {
    var random = SeededRandom(seed: seed)
    let begins = Int64.random(in: 0...600, using: &random)
    let ends = Int64.random(in: 0...1800, using: &random)
    let pace = [0.5, 5, 60, 700, 4000][Int(seed % 5)]
    var board = board(begins: begins, ends: ends)
    var (now, isOpen) = (time(0), false)
    var (lastBad, lastWell): (MonotonicTime?, MonotonicTime?) = (nil, nil)
    var begun: [MonotonicTime] = []
    func look(_ change: AlertChange?) {
      switch change {
      case .begins(_, _, _, let since, _)?:
        #expect(!isOpen && now - since >= .seconds(begins))
        #expect(lastWell.map { $0 <= since } ?? true, "all readings since then were bad")
        isOpen = true
        begun.append(now)
      case .ends?:
        #expect(isOpen)
        #expect(lastBad.map { now - $0 >= .seconds(ends) } ?? false, "it was well for its time")
        isOpen = false
      case nil: break
      }
    }
    for _ in 0..<4000 {
      let next = now + .milliseconds(Int64(Double.random(in: 0...(2 * pace), using: &random) * 1000))
      while let due = board.due, due <= next {
        now = max(now, due)
        let changes = board.timedOut(now: now)
        #expect(changes.count == 1, "each due change happens")
        for change in changes { look(change) }
      }
      now = next
      let reading = [Self.bad, Self.bad, .between, .well, .well, .well][Int.random(in: 0..<6, using: &random)]
      look(board.read(radio, reading, now: now))
      if reading == .well { lastWell = now }
      if reading == Self.bad { lastBad = now }
    }
    // Within any day each return doubles the pause before it. Zero counts as a minute from the first return on.
    for (index, first) in begun.enumerated() {
      let inADay = begun[index...].prefix { $0 - first < .seconds(86_400) }.count
      #expect(inADay <= 13, "\(inADay) in a day with \(begins) and \(ends)")
    }
  }

  @Test func `an alert that somebody ends is over at once, each time`() {
    var board = AlertBoard(AlertSettings(AlertRule.ofGateways))
    let subject = AlertSubject(.configurationWrong)
    for round in 0..<5 {
      _ = board.read(subject, Self.bad, now: time(Double(round) * 10))
      #expect(board.isOpen(subject))
      _ = board.read(subject, .well, now: time(Double(round) * 10 + 1))
      _ = board.timedOut(now: time(Double(round) * 10 + 1))
      #expect(!board.isOpen(subject), "round \(round)")
    }
  }

  @Test func `an alert that was open over a restart is not reported again, and its end once`() {
    var board = board(begins: 0, ends: 60)
    board.restore(radio, returns: 2)
    #expect(board.open == [radio] && board.due == nil)
    #expect(board.read(radio, Self.bad, now: time(5)) == nil)
    #expect(board.read(radio, .well, now: time(6)) == nil)
    #expect(board.due == time(246), "its past counts, too")
    #expect(board.timedOut(now: time(246)) == [.ends(radio)])
    #expect(board.timedOut(now: time(1000)).isEmpty)
  }

  @Test func `an alert's end before a restart is remembered for a day`() {
    var board = board(begins: 0)
    board.restoreEnded(radio, at: time(-3600), returns: 3)
    guard case .begins(_, _, _, _, let returns) = board.read(radio, Self.bad, now: time(0)) else {
      Issue.record("nothing began")
      return
    }
    #expect(returns == 4)
  }

  @Test func `switching a rule off ends its open alerts, begins none, and forgets its past`() {
    var board = board(begins: 0)
    _ = board.read(radio, Self.bad, now: time(0))
    var settings = board.settings
    settings.times[.radioLost] = nil
    #expect(board.change(settings) == [.ends(radio)])
    #expect(board.read(radio, Self.bad, now: time(1)) == nil && board.open.isEmpty && board.due == nil)
  }

  @Test func `subjects are distinguished by their bytes, and their number is bounded`() {
    var board = board()
    let (one, other) = (AlertSubject(.deadLetters, "caf\u{E9}"), AlertSubject(.deadLetters, "cafe\u{301}"))
    #expect(one != other)
    #expect(board.read(one, Self.bad, now: time(0)) != nil && board.read(other, Self.bad, now: time(0)) != nil)
    for number in 0..<2000 { _ = board.read(AlertSubject(.deadLetters, "\(number)"), Self.bad, now: time(1)) }
    #expect(board.open.count == AlertBoard.maxSubjects)
    for subject in board.open { #expect(board.drop(subject) == .ends(subject)) }
    #expect(board.open.isEmpty)
  }

  @Test func `subjects that are well take no memory`() {
    var board = board()
    for number in 0..<5000 { _ = board.read(AlertSubject(.backlogged, "\(number)"), .well, now: time(1)) }
    #expect(board.read(AlertSubject(.backlogged, "last"), Self.bad, now: time(2)) == nil && board.due != nil)
  }

  @Test func `every rule has a sentence with its configured times`() {
    for rule in AlertRule.allCases {
      let text = rule.sentence(AlertTimes(begins: .seconds(7200), ends: .seconds(90)))
      #expect(text.hasSuffix(".") && !text.contains(" 0 seconds"), "\(text)")
    }
    let usual = AlertRule.radioLost.sentence(AlertRule.radioLost.usual)
    #expect(usual == "The radio has been away for 2 minutes. It ends when all has been well for 5 minutes.")
    #expect(Set(AlertRule.ofGateways + AlertRule.ofHubs) == Set(AlertRule.allCases))
  }

  @Test func `a silent subject is late once, and listening again keeps its last time`() {
    var silence = Silence<String>()
    silence.listen(for: "Ridge", heard: time(0), limit: .seconds(100))
    #expect(silence.due(after: time(0)) == time(100))
    #expect(!silence.isLate("Ridge", now: time(99)) && silence.isLate("Ridge", now: time(100)))
    #expect(silence.due(after: time(100)) == nil, "a late subject needs no timer")
    #expect(silence.due(after: time(99)) == time(100), "that time passed since the last look makes nobody forgotten")
    silence.hear("Ridge", at: time(150))
    silence.listen(for: "Ridge", heard: time(0), limit: .seconds(50))
    #expect(silence.due(after: time(150)) == time(200) && silence.heard("Ridge") == time(150))
    #expect(!silence.hear("nobody", at: time(1)) && !silence.isLate("nobody", now: time(1000)))
  }
}
