// SPDX-License-Identifier: MIT

extension EventLoop {
  /// A connected, non-blocking TCP socket, whose owner the caller becomes. Cancelled, it leaves nothing behind. `triesAgain`: as of
  /// `Connector`.
  public func connect(
    host: String, port: UInt16, timeout: Duration, triesAgain: Bool = false
  ) async throws(Connector.Failure) -> Int32 {
    let connected = Promise<Swift.Result<Int32, Connector.Failure>>()
    let connector = Connector(host: host, port: port, timeout: timeout, triesAgain: triesAgain, on: self) {
      connected.keep($0)
    }
    defer { connector.cancel() }
    let result: Swift.Result<Int32, Connector.Failure>
    // What was kept is returned, even to a task that was cancelled in the same turn: the socket has an owner.
    do { result = try await connected.value() } catch { throw .cancelled }
    return try result.get()
  }

  /// A line that was down is said to be up: connections that are being made ask once more, and do not wait until the kernel does.
  public func hurryConnections() { for connector in connecting.values { connector.hurry() } }
}
