// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Signals as events of the loop (signalfd). Create it before any thread: threads inherit the blocked signals.
public final class Signals {
  private let descriptor: Int32
  private let loop: EventLoop

  /// From now on these signals wait for the one who receives them: otherwise they would end a program that is still beginning.
  public static func hold(_ numbers: [Int32]) {
    var mask = sigset_t()
    sigemptyset(&mask)
    for number in numbers { sigaddset(&mask, number) }
    pthread_sigmask(SIG_BLOCK, &mask, nil)
  }

  /// `handler` receives each signal of `numbers`. SIGPIPE is ignored for the whole process.
  public init(_ numbers: [Int32], on loop: EventLoop, _ handler: @escaping (Int32) -> Void) {
    self.loop = loop
    signal(SIGPIPE, SIG_IGN)
    Self.hold(numbers)
    var mask = sigset_t()
    sigemptyset(&mask)
    for number in numbers { sigaddset(&mask, number) }
    descriptor = signalfd(-1, &mask, Int32(SFD_CLOEXEC | SFD_NONBLOCK))
    let source = descriptor
    loop.watch(source, for: .readable) { _ in
      var info = signalfd_siginfo()
      while read(source, &info, MemoryLayout<signalfd_siginfo>.size) == MemoryLayout<signalfd_siginfo>.size {
        handler(Int32(info.ssi_signo))
      }
    }
  }

  deinit {
    loop.unwatch(descriptor)
    close(descriptor)
  }
}

/// Signals for one task, in order. A signal that is still in the queue is not added again, so that a burst of one
/// signal does not displace others.
public final class SignalQueue {
  private final class Pending {
    var numbers: [Int32] = []
    let came = Waiter()

    func put(_ number: Int32) {
      if !numbers.contains(number) { numbers.append(number) }
      came.resume()
    }
  }

  private let pending = Pending()
  private let signals: Signals?

  /// Receives these signals as `Signals` does.
  public init(_ numbers: [Int32], on loop: EventLoop) {
    signals = Signals(numbers, on: loop) { [pending] in pending.put($0) }
  }

  /// A queue that receives only signals that the program sends itself.
  public init() { signals = nil }

  public func put(_ number: Int32) { pending.put(number) }

  public func next() async throws(CancellationError) -> Int32 {
    while pending.numbers.isEmpty { try await pending.came.wait() }
    return pending.numbers.removeFirst()
  }
}
