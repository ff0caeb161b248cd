// SPDX-License-Identifier: MIT

import EventLoop
import ServiceManager
import Sync
import Timing

/// What the gateway owes to a service manager: that it is ready, how it is, and signs of life while it gets on.
///
/// A sign of life is not a timer's: it is given at the end of a turn in which what was to be written was written or its failure was dealt
/// with, and only while the link to the radio gets on: up and heard of, or down and about to be tried again. A gateway that
/// hangs, spins, or has forgotten what it waits for is killed and restarted by the manager.
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

  func ending() {
    timer?.cancel()
    manager.stopping()
  }

  // MARK: Signs of life

  /// What happens anyway is used for it, so that it costs a wake-up only where nothing else happens.
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
    // With a message in hand that the disk refuses, the radio is left alone, for as long as it takes.
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
