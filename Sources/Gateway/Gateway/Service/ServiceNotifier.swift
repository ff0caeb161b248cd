// SPDX-License-Identifier: MIT

import EventLoop
import ServiceManager
import Sync
import Timing

/// Reports to the service manager: readiness, status, and signs of life while the gateway makes progress.
///
/// No timer alone gives a sign of life: it comes at the end of a turn whose writes succeeded or whose failure was
/// handled, and only while the link to the radio makes progress: it is up and not silent, or down with a planned
/// attempt. The manager kills and restarts a gateway that hangs, spins, or waits for nothing.
final class ServiceNotifier {
  private let manager: ServiceManager
  private let synchronizer: Synchronizer
  private let loop: EventLoop
  private let log: Log
  private let watchdog: Duration?
  private var lastSign: MonotonicTime
  private var timer: LoopTimer?
  private var lastStatus = ""
  private var isStuck = false

  init(_ manager: ServiceManager, _ synchronizer: Synchronizer, on loop: EventLoop, log: Log) {
    self.manager = manager
    self.synchronizer = synchronizer
    self.loop = loop
    self.log = log
    watchdog = manager.watchdog
    lastSign = loop.now
  }

  /// The store is open, the control socket answers, and the first turn has ended.
  func ready(_ status: String) {
    lastStatus = status
    manager.ready(status)
    guard watchdog != nil else { return }
    giveSign()
    loop.afterTurn { [weak self] in self?.turnEnded() }
  }

  func changed(_ status: String) {
    guard status != lastStatus else { return }
    lastStatus = status
    manager.status(status)
  }

  func reloading() { manager.reloading(now: loop.now) }
  func reloaded() { manager.ready(lastStatus) }

  /// Does work that may block the loop for longer than the watchdog waits, such as to read all of a large database from
  /// a slow card.
  func patiently<Result, Failure: Error>(_ work: () throws(Failure) -> Result) throws(Failure) -> Result {
    guard let watchdog else { return try work() }
    manager.setWatchdog(max(watchdog, Self.patience))
    defer {
      manager.setWatchdog(watchdog)
      giveSign()
    }
    return try work()
  }

  private static let patience: Duration = .seconds(3600)

  func ending() {
    timer?.cancel()
    manager.stopping()
  }

  // MARK: Signs of life

  /// Uses turns that happen anyway, so that a sign of life costs a wake-up only if nothing else happens.
  private func turnEnded() {
    guard let watchdog, loop.now - lastSign >= watchdog / 4 else { return }
    giveSign()
  }

  private func giveSign() {
    guard let watchdog, mayGiveSign() else { return }
    manager.lives()
    lastSign = loop.now
    timer?.cancel()
    timer = loop.schedule(after: watchdog / 2) { [weak self] in self?.giveSign() }
  }

  private func mayGiveSign() -> Bool {
    // While the disk refuses a message, the radio is not queried, for as long as it takes.
    let trouble = synchronizer.hasMessageInHand ? nil : synchronizer.connection.stalledReason(now: loop.now)
    guard let trouble else {
      isStuck = false
      return true
    }
    if !isStuck { log.error("\(trouble): this is a bug. The service manager will restart the gateway") }
    isStuck = true
    return false
  }
}
