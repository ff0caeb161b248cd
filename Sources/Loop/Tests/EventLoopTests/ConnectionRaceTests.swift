// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Testing
import Timing

@testable import EventLoop

private typealias Action = ConnectionRace.Action

@Suite struct ConnectionRaceTests {
  private let start = MonotonicTime(seconds: 100)
  private let four = AF_INET
  private let six = AF_INET6

  /// The order of attempts if each address fails at once.
  private func order(_ families: [Int32], first: Int? = nil, last: Int? = nil) -> [Int] {
    var race = ConnectionRace(families: families, first: first, last: last)
    var tried: [Int] = []
    var actions = race.begin(now: start)
    while case .start(let address)? = actions.first {
      tried.append(address)
      actions = race.failed(address, now: start)
    }
    #expect(actions == [.lost])
    return tried
  }

  @Test func `address families alternate, beginning with the resolver's first`() {
    #expect(order([six, six, six, four, four]) == [0, 3, 1, 4, 2])
    #expect(order([four, four, six]) == [0, 2, 1])
    #expect(order([six]) == [0])
    #expect(order([six, six, four, four], first: 3) == [3, 0, 2, 1], "last time's address, then the other family")
    #expect(order([six, four], first: 7) == [0, 1], "it is not among them any more")
    #expect(order([six, six, four, four], last: 0) == [1, 2, 0, 3], "its server said nothing last time")
    #expect(order([six, four], last: 0) == [1, 0] && order([six], last: 0) == [0])
  }

  @Test func `the next address is tried after 250 ms without an answer, and at once after a refusal`() {
    var race = ConnectionRace(families: [six, four, six])
    #expect(race.begin(now: start) == [.start(0)])
    #expect(race.nextAt == start + .milliseconds(250))
    #expect(race.timePassed(now: start + .milliseconds(249)) == [])
    #expect(race.timePassed(now: start + .milliseconds(250)) == [.start(1)])
    #expect(race.failed(1, now: start + .milliseconds(260)) == [.start(2)])
    #expect(race.nextAt == nil, "there is nobody left to wait for")
    #expect(race.failed(2, now: start + .milliseconds(270)) == [], "the first may still answer")
    #expect(race.underWay == [0])
    #expect(race.failed(0, now: start + .seconds(3)) == [.lost])
  }

  @Test func `of many addresses that do not answer, eight are tried at once, and each is tried in the end`() {
    var race = ConnectionRace(families: [Int32](repeating: six, count: 30))
    var (now, started, givenUp) = (start, [Int](), [Int]())
    func note(_ actions: [Action]) {
      for action in actions {
        switch action {
        case .start(let address): started.append(address)
        case .giveUp(let address): givenUp.append(address)
        case .lost: Issue.record("somebody may still answer")
        }
      }
    }
    note(race.begin(now: now))
    while let next = race.nextAt {
      now = next
      note(race.timePassed(now: now))
      #expect(race.underWay.count <= ConnectionRace.maxAtOnce)
    }
    #expect(started == Array(0..<30))
    #expect(givenUp == Array(0..<22), "the oldest make room")
    #expect(now - start == .milliseconds(29 * 250), "within the limit of every connection")
    #expect(race.failed(3, now: now) == [], "it was given up")
  }

  @Test(arguments: [UInt64(1), 2, 3]) func `every address is tried once and the race ends, in any order of events`(
    _ seed: UInt64
  ) {
    var random = SeededRandom(seed: seed)
    for _ in 0..<2000 {
      let families = (0..<Int.random(in: 1...20, using: &random)).map { _ in Bool.random(using: &random) ? four : six }
      var race = ConnectionRace(
        families: families, first: Int.random(in: 0...20, using: &random), triesAgain: Bool.random(using: &random))
      var (now, started, isLost) = (start, [Int](), false)
      var actions = race.begin(now: now)
      while !isLost {
        for action in actions {
          if case .start(let address) = action { started.append(address) }
          if action == .lost { isLost = true }
        }
        now = now + .milliseconds(Int64.random(in: 0...400, using: &random))
        if Bool.random(using: &random), let address = race.underWay.randomElement(using: &random) {
          actions = race.failed(address, now: now)
        } else {
          actions = race.timePassed(now: now)
        }
      }
      // A repeated attempt has its own number.
      #expect(started.filter { $0 < families.count }.sorted() == Array(families.indices))
      #expect(Set(started).count == started.count)
      #expect(race.nextAt == nil && race.underWay.isEmpty)
    }
  }

  @Test func `a silent address is tried again in parallel, where the line may have been down`() {
    var race = ConnectionRace(families: [six, four], triesAgain: true)
    var (now, started) = (start, race.begin(now: start))
    while let next = race.nextAt {
      now = next
      started += race.timePassed(now: now)
    }
    // 2 is the first address again, 3 the second.
    let all: [Action] = (0..<5).map { .start($0) }
    #expect(started == all)
    #expect(race.underWay == [0, 1, 2, 3, 4], "nothing is given up: the first may be answered first")
    let whole: Duration = ConnectionRace.delay + ConnectionRace.again * 3
    #expect(now - start == whole)
    for attempt in 0..<4 { #expect(race.failed(attempt, now: now) == []) }
    #expect(race.failed(4, now: now) == [.lost])
  }

  @Test func `after news that the line is up an address is tried again at once, a limited number of times`() {
    for triesAgain in [false, true] {
      var race = ConnectionRace(families: [six], triesAgain: triesAgain)
      #expect(race.hurry(now: start) == [], "nobody was asked yet")
      _ = race.begin(now: start)
      let now = start + .seconds(2)
      #expect(race.hurry(now: now) == [.start(1)])
      let next: MonotonicTime? = triesAgain ? now + ConnectionRace.again : nil
      #expect(race.nextAt == next)
      #expect(race.failed(0, now: now) == [], "the other may still answer")
      #expect(race.hurry(now: now) == [.start(2)])
      #expect(race.hurry(now: now) == [.start(3)])
      #expect(race.hurry(now: now) == [])
    }
    var two = ConnectionRace(families: [six, six])
    _ = two.begin(now: start)
    #expect(two.hurry(now: start) == [], "the second comes anyway")
  }

  @Test func `a host that worked lately is still known as such after a failure`() {
    var good = GoodAddresses()
    #expect(!good.hasWorkedLately("host", now: start))
    good.worked(NetworkAddress(family: four, bytes: [1]), for: "host", now: start)
    good.forget("host")
    #expect(good["host"] == nil)
    #expect(good.hasWorkedLately("host", now: start + GoodAddresses.lately))
    #expect(!good.hasWorkedLately("host", now: start + GoodAddresses.lately + .seconds(1)))
    #expect(!good.hasWorkedLately("other", now: start))
  }

  @Test func `the list of good addresses is bounded, and the newest address of a host counts`() {
    var good = GoodAddresses()
    func address(_ last: UInt8) -> NetworkAddress { NetworkAddress(family: four, bytes: [last]) }
    for number in 0..<40 { good.worked(address(UInt8(number)), for: "host \(number)", now: start) }
    #expect(good["host 0"] == nil && good["host 39"] == address(39))
    good.worked(address(7), for: "host 39", now: start)
    #expect(good["host 39"] == address(7))
    good.forget("host 39")
    #expect(good["host 39"] == nil)
  }
}

@Suite struct ConnectorTests {
  private static func connect(_ host: String, _ port: UInt16, on loop: EventLoop) -> Result<Int32, Connector.Failure>? {
    var result: Result<Int32, Connector.Failure>?
    let connector = Connector(host: host, port: port, timeout: .seconds(30), on: loop) {
      result = $0
      loop.stop()
    }
    loop.run()
    connector.cancel()
    return result
  }

  @Test func `an address that worked is remembered, and is forgotten when it fails`() throws {
    let loop = EventLoop()
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    let socket = try #require(try Self.connect("127.0.0.1", port, on: loop)?.get())
    close(socket)
    #expect(loop.goodAddresses["127.0.0.1 port \(port)"]?.description == "127.0.0.1")
    close(listener)
    guard case .failure(let failure)? = Self.connect("127.0.0.1", port, on: loop) else {
      Issue.record("nobody listens there")
      return
    }
    #expect(failure.description == "127.0.0.1 port \(port): Connection refused")
    #expect(loop.goodAddresses["127.0.0.1 port \(port)"] == nil)
  }

  @Test func `an address on which the server says nothing is tried last the next time, until it connects again`() {
    var good = GoodAddresses()
    let address = NetworkAddress(family: AF_INET, bytes: [1])
    good.worked(address, for: "host", now: MonotonicTime(seconds: 1))
    good.wasSilent("other")
    #expect(!good.isSilent("host"))
    good.wasSilent("host")
    #expect(good.isSilent("host") && good["host"] == address)
    good.worked(address, for: "host", now: MonotonicTime(seconds: 2))
    #expect(!good.isSilent("host"))
  }

  @Test func `a failure lists the result of each address, grouped by reason`() {
    let attempts = [("::1", "no answer in time"), ("192.0.2.1", "Connection refused"), ("::2", "no answer in time")]
      .map { Connector.Failure.Attempt(address: $0.0, message: $0.1) }
    #expect(
      Connector.Failure.timedOut("hub port 443", attempts).description
        == "hub port 443: no answer in time (::1, ::2), Connection refused (192.0.2.1)")
    #expect(
      Connector.Failure.timedOut("hub port 443", []).description
        == "hub port 443: the name lookup timed out")
  }

  @Test func `a cancelled connection attempt leaves no socket, and its caller gets no result`() throws {
    let loop = EventLoop()
    // A listener with a full queue drops further connections, like a dead address.
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    listen(listener, 0)
    let address = NetworkAddress(family: AF_INET, bytes: Self.loopback(port))
    let fillers = try (0..<4).map { _ in try address.connect().socket }
    defer { for socket in fillers + [listener] { close(socket) } }
    weak var gone: Connector?
    do {
      let connector = Connector(host: "127.0.0.1", port: port, timeout: .seconds(60), on: loop) { _ in
        Issue.record("it was cancelled")
      }
      gone = connector
      // Its name is known, and it waits for the connection.
      while loop.watchCount < 1 || connector.isLookingUp { loop.turn(wait: true) }
      connector.cancel()
      #expect(loop.watchCount == 0)
    }
    #expect(gone == nil)
  }

  @Test(arguments: [false, true]) func `a connection attempt in progress is retried at once if its owner allows it`(
    _ triesAgain: Bool
  ) throws {
    let loop = EventLoop()
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    listen(listener, 0)
    let address = NetworkAddress(family: AF_INET, bytes: Self.loopback(port))
    let fillers = try (0..<4).map { _ in try address.connect().socket }
    defer { for socket in fillers + [listener] { close(socket) } }
    let connector = Connector(
      host: "127.0.0.1", port: port, timeout: .seconds(60), triesAgain: triesAgain, on: loop
    ) { _ in Issue.record("nobody answers") }
    loop.hurryConnections()
    while loop.watchCount < 1 || connector.isLookingUp { loop.turn(wait: true) }
    #expect(loop.watchCount == 1)
    loop.hurryConnections()
    #expect(loop.watchCount == (triesAgain ? 2 : 1))
    connector.cancel()
    #expect(loop.watchCount == 0 && loop.connecting.isEmpty)
  }

  private static func loopback(_ port: UInt16) -> [UInt8] {
    [UInt8(AF_INET), 0, UInt8(port >> 8), UInt8(port & 0xFF), 127, 0, 0, 1] + [UInt8](repeating: 0, count: 8)
  }
}
