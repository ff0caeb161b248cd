// SPDX-License-Identifier: MIT

import Dispatch
import Glibc
import Synchronization

/// Signals of a server from its first moment to its last. Its parts receive them only while they run: what comes before and between them is kept here, and
/// raised again when the next part can receive it. Otherwise it would end a hub that begins, or be lost.
enum StartSignals {
  private static let stops = [SIGTERM, SIGINT]
  /// A bit for each number that came.
  private static let came = Atomic<Int32>(0)
  /// Whether a part runs that ends the program at a signal.
  private static let isReceived = Atomic(false)
  /// Of its own: signals are noted in their order, and `isStopped` can wait for those that have come.
  private static let queue = DispatchQueue(label: "meshpost.hub.signals")
  /// So long a start goes on after a signal to end: it may wait for a database, or upgrade one, which another start can do as well.
  private static let grace: DispatchTimeInterval = .seconds(5)

  /// From now on no signal ends the program by its default action.
  static func take() {
    // So that no signal handler makes it.
    note(0)
    for number in stops + [SIGHUP] { signal(number) { StartSignals.note(1 << $0) } }
  }

  /// Notes also what other parts receive, until the sources are cancelled: one may be at its end, and ignore it.
  static func watchStops() -> [any DispatchSourceSignal] {
    stops.map { number in
      let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
      source.setEventHandler {
        note(1 << number)
        endLate()
      }
      source.resume()
      return source
    }
  }

  /// Whether the program shall end.
  static var isStopped: Bool {
    // Another part may have ended by a signal that is not noted yet.
    queue.sync {}
    return stops.contains { has($0) }
  }

  /// Whether a signal has ended the program before it served.
  static var hasEndedStart: Bool { isStopped && !isReceived.load(ordering: .relaxed) }

  /// Now somebody receives signals to end: sends one again, if one came.
  static func repeatStop() {
    isReceived.store(true, ordering: .relaxed)
    if isStopped { kill(getpid(), SIGTERM) }
  }

  /// Whoever received signals has ended.
  static func nobodyReceives() { isReceived.store(false, ordering: .relaxed) }

  private static func endLate() {
    DispatchQueue.global().asyncAfter(deadline: .now() + grace) {
      // Nothing is served that could be ended in order.
      if !isReceived.load(ordering: .relaxed) { _exit(EXIT_SUCCESS) }
    }
  }

  /// Sends SIGHUP again, if it came.
  static func repeatHangUp() { if has(SIGHUP) { kill(getpid(), SIGHUP) } }

  private static func has(_ number: Int32) -> Bool { came.load(ordering: .relaxed) & 1 << number != 0 }
  private static func note(_ bits: Int32) { came.bitwiseOr(bits, ordering: .relaxed) }
}
