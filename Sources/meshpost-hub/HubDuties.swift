// SPDX-License-Identifier: MIT

import Hub
import ServiceManager

/// What the hub owes to a service manager: that it is ready, and signs of life while its database's thread gets on.
final class HubDuties: Sendable {
  private let ports: AsyncStream<Int>.Continuation
  private let task: Task<Void, Never>

  init(_ server: HubServer) {
    let (stream, ports) = AsyncStream<Int>.makeStream()
    self.ports = ports
    // One task alone uses it.
    nonisolated(unsafe) let manager = ServiceManager.ofThisProcess()
    task = Task {
      guard let manager else { return }
      for await port in stream { manager.ready("listening on port \(port)") }
      guard let watchdog = manager.watchdog else { return }
      while !Task.isCancelled {
        // A database that is away is answered with an error, and that is an answer.
        await server.pulse()
        manager.lives()
        // Ended while it sleeps: then it is not needed any more.
        try? await Task.sleep(for: watchdog / 3)
      }
    }
  }

  func isReady(port: Int) {
    ports.yield(port)
    ports.finish()
  }

  func end() {
    ports.finish()
    task.cancel()
  }
}
