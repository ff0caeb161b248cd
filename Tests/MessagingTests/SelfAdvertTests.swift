// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import Messaging

@Suite struct SelfAdvertTests {
  private func settings(whenNew: Bool = false, every: Duration = .zero) -> SelfAdvert.Settings {
    var settings = SelfAdvert.Settings()
    (settings.whenNew, settings.every) = (whenNew, every)
    return settings
  }

  private func send(_ advert: SelfAdvert, _ bench: Bench, isFlood: Bool = false) throws -> Refusal? {
    try bench.refusal { () throws(Refusal) in try await advert.send(isFlood: isFlood) }
  }

  @Test func `an advert is due for a new radio, then after the interval, and a restart changes nothing`() throws {
    let bench = try Bench()
    #expect(SelfAdvert(bench.messenger, settings()).wait == nil)
    let advert = SelfAdvert(bench.messenger, settings(whenNew: true))
    #expect(try #require(advert.wait) <= .seconds(5))
    #expect(advert.report?.at == nil)
    #expect(try send(advert, bench) == nil)
    #expect(advert.wait == nil, "it is not new any more")
    #expect(advert.report?.at != nil && advert.report?.isFlood == false && advert.report?.isCurrent == true)
    let daily = settings(whenNew: true, every: .seconds(86_400))
    let later = SelfAdvert(bench.messenger, daily)
    #expect(later.report?.at == advert.report?.at, "it is on disk")
    #expect(try #require(later.wait) > .seconds(80_000))
    #expect(SelfAdvert(bench.messenger, settings(whenNew: true)).wait == nil)
  }

  @Test func `an old advert is due at once, unless a wrong clock gave its time`() throws {
    let bench = try Bench()
    #expect(try send(SelfAdvert(bench.messenger, settings()), bench) == nil)
    var record = try #require(try bench.store.lastAdvert())
    for (at, trusted) in [(0, true), (Int64.max, true), (0, false)] {
      record.at = Moment(milliseconds: at, trusted: trusted)
      bench.store.write { store throws(SQLiteError) in try store.setLastAdvert(record) }
      try bench.store.commitNow()
      let wait = try #require(SelfAdvert(bench.messenger, settings(every: .seconds(86_400))).wait)
      let isOld = at == 0 && trusted && bench.synchronizer.now.trusted
      #expect(isOld ? wait <= .seconds(5) : wait > .seconds(80_000), "\(at) \(trusted)")
    }
    record.radio = bench.other.key
    bench.store.write { store throws(SQLiteError) in try store.setLastAdvert(record) }
    try bench.store.commitNow()
    #expect(SelfAdvert(bench.messenger, settings()).report?.at == nil, "that was another radio")
  }

  @Test func `an advert uses the hour's air time, and one of a program that shares the radio counts`() throws {
    var delivery = Messenger.Settings()
    delivery.delivery.budget.airtime = 1500
    let bench = try Bench(delivery)
    let advert = SelfAdvert(bench.messenger, settings())
    #expect(try send(advert, bench, isFlood: true) == nil)
    #expect(bench.messenger.status.airtime.used > 500)
    guard case .full? = try send(advert, bench) else {
      Issue.record("a second one does not fit")
      return
    }
    #expect(advert.report?.isFlood == true)
    bench.messenger.noteAdvert(isFlood: false)
    #expect(advert.report?.isFlood == false)
  }

  @Test func `an advert through the mesh waits a minute after the same one, and neither news nor neighbours wait`()
    throws
  {
    var isBusy = true
    let bench = try Bench(
      on: InventedMachine(),
      refuses: { command in
        guard isBusy, case .sendSelfAdvert = command else { return nil }
        return .tableFull
      })
    let advert = SelfAdvert(bench.messenger, settings())
    func pass(_ time: Duration) throws {
      let end = bench.loop.now + time
      try bench.run("\(time)") { bench.loop.now >= end }
    }
    func isRefused() throws -> Bool {
      guard let refusal = try send(advert, bench, isFlood: true) else { return false }
      guard case .full(let words) = refusal else {
        Issue.record("\(refusal)")
        return true
      }
      #expect(words.contains(" s ago") && words.contains("again in "))
      return true
    }
    #expect(try send(advert, bench, isFlood: true) != nil, "the radio refuses")
    isBusy = false
    #expect(try !isRefused(), "the first one was not sent")
    #expect(try isRefused())
    #expect(advert.floodRefusal?.description.contains("again in 60 s") == true)
    #expect(try send(advert, bench) == nil, "neighbours do not repeat it")
    #expect(try isRefused(), "and it has not ended the pause")
    #expect(bench.messenger.advertRefusal == advert.floodRefusal)
    try pass(.seconds(50))
    #expect(try isRefused())
    try pass(.seconds(10))
    #expect(try !isRefused())
    #expect(try isRefused())
    bench.own.received(Command.setAdvertName("Hilltop").encode())
    _ = bench.loop.begin { [synchronizer = bench.synchronizer] in await synchronizer.refreshIdentity() }
    try bench.run("its new name") { bench.synchronizer.connection.identity?.info.name.string == "Hilltop" }
    #expect(try !isRefused(), "others know it under its old name")
    #expect(try isRefused())
  }
}
