// SPDX-License-Identifier: MIT

extension EventLoop {
  /// A connected, non-blocking TCP socket; the caller owns it. A cancelled call leaves nothing open. `triesAgain`: see
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
    // A socket that is already connected is returned even to a cancelled task, so that it has an owner.
    do { result = try await connected.value() } catch { throw .cancelled }
    return try result.get()
  }

  /// Nothing came on the last connection to this server: its other addresses are tried first the next time.
  public func wasSilent(_ host: String, _ port: UInt16) { goodAddresses.wasSilent(Connector.target(host, port)) }

  /// Call it when the line may be up again: pending connections then retry at once, before the kernel would.
  public func hurryConnections() { for connector in connecting.values { connector.hurry() } }
}
