// SPDX-License-Identifier: MIT

import Hub
import ServiceManager

/// Notifies the service manager: readiness, and watchdog pings while its loops and links respond.
final class ServiceNotifier: Sendable {
  private let ports: AsyncStream<Int>.Continuation
  private let task: Task<Void, Never>

  init(_ server: HubServer) {
    let (stream, ports) = AsyncStream<Int>.makeStream()
    self.ports = ports
    // Only the task below uses it.
    nonisolated(unsafe) let manager = ServiceManager.ofThisProcess()
    task = Task {
      guard let manager else { return }
      for await port in stream { manager.ready("listening on port \(port)") }
      guard let watchdog = manager.watchdog else { return }
      while !Task.isCancelled {
        await server.checkLoops()
        manager.lives()
        // `try?`: `end` cancels it.
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
