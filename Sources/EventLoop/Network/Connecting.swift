// SPDX-License-Identifier: MIT

import Timing

extension EventLoop {
  /// A connected, non-blocking TCP socket, whose owner the caller becomes. Throws `Connector.Failure`, or `CancellationError`: then
  /// nothing of it is left.
  public func connect(host: String, port: UInt16, timeout: Duration) async throws -> Int32 {
    let connected = Promise<Swift.Result<Int32, Connector.Failure>>()
    let connector = Connector(host: host, port: port, timeout: timeout, on: self) { connected.keep($0) }
    let result: Swift.Result<Int32, Connector.Failure>
    do {
      result = try await connected.value()
    } catch {
      connector.cancel()
      throw error
    }
    return try result.get()
  }
}
