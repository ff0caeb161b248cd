// SPDX-License-Identifier: MIT

import HTTPTypes
import Hummingbird
import HummingbirdCore
import ServiceLifecycle
import Synchronization

/// The start of a hub that cannot open its database yet, because the disk has no room for that or another program has locked the file: until then it
/// refuses all requests with the reason. So gateways keep their events and show why, and nobody has to start the hub again.
public struct WaitingStart: Sendable {
  /// Between two attempts to open the database.
  private static let pause: Duration = .seconds(2)

  private let configuration: HubConfiguration
  private let error: HubDatabaseError

  /// `error`: that of the attempt to start. `nil`: it has a reason that does not pass by itself.
  public init?(_ configuration: HubConfiguration, after error: any Error) {
    guard let error = error as? HubDatabaseError, error.passesByItself else { return nil }
    (self.configuration, self.error) = (configuration, error)
  }

  /// Returns once the database can be opened; `false`: after SIGTERM or SIGINT. `waits`: called before each attempt, with the reason.
  public func run(_ waits: @escaping @Sendable (String) -> Void) async throws -> Bool {
    HubLog.write(.error, error.isDiskFull ? FullDisk.words(error) : "waiting for \(error.wanted) (\(error))")
    let room = ConnectionTable.room(
      limit: OpenFiles.raiseLimit(), open: OpenFiles.count, wanted: configuration.maxConnections)
    let connections = ConnectionTable(most: max(room, ConnectionTable.least), HubAccess([]), log: HubLog.write)
    let reason = error.reason
    let application = Application(
      responder: CallbackResponder<HubContext> { [error] request, _ in Self.answer(request, error) },
      server: HTTPServerBuilder { responder in
        LinkUpgradeChannel(
          responder: responder, maxMessage: TransferMemory.small, connections: connections, admit: { _ in .closed },
          decide: { _ in nil }, serve: { _, _, _ in })
      },
      configuration: .init(
        address: .hostname(configuration.host, port: configuration.port), availableConnectionsDelegate: connections),
      logger: HubLog.logger("hub"))
    let attempts = DatabaseAttempts(pause: Self.pause) { [configuration] in
      waits(reason)
      _ = try HubStore(location: configuration.location, password: configuration.password)
    }
    let group = ServiceGroup(
      configuration: .init(
        services: [
          ServiceGroupConfiguration.ServiceConfiguration(service: application),
          ServiceGroupConfiguration.ServiceConfiguration(
            service: attempts, successTerminationBehavior: .gracefullyShutdownGroup),
        ], gracefulShutdownSignals: [.sigterm, .sigint], logger: HubLog.logger("hub")))
    do {
      try await group.run()
    } catch {
      throw ListenFailure(error, host: configuration.host, port: configuration.port) ?? error
    }
    let canStart = try attempts.outcome.get()
    if canStart { HubLog.write(.notice, error.isDiskFull ? "the disk has room again" : "the database is unlocked") }
    return canStart
  }

  /// It serves nothing yet, so it is not ready, unlike a hub whose disk becomes full later.
  static func answer(_ request: Request, _ error: HubDatabaseError) -> Response {
    let response = response(request.uri.path, error)
    return request.method == .head ? response.createHeadResponse() : response
  }

  private static func response(_ path: String, _ error: HubDatabaseError) -> Response {
    switch path {
    case "/healthz": HubAPI.json(["ok": true])
    case "/readyz":
      HubAPI.json(
        ["ready": false, "reason": DatabaseProbe.Problem.starting.rawValue, "disk": error.isDiskFull ? "full" : nil],
        status: .serviceUnavailable)
    default: HubAPI.refusal(.serviceUnavailable, error.reason, retryAfter: 10)
    }
  }
}

/// Attempts to open a database, until one does not fail for a reason that passes by itself.
final class DatabaseAttempts: Service {
  /// The result of the last attempt; `false`: there was none after which the hub can start.
  var outcome: Result<Bool, any Error> { result.withLock { $0 } }

  private let result = Mutex<Result<Bool, any Error>>(.success(false))
  private let pause: Duration
  private let open: @Sendable () throws -> Void

  init(pause: Duration, _ open: @escaping @Sendable () throws -> Void) { (self.pause, self.open) = (pause, open) }

  @concurrent func run() async throws {
    while !Task.isShuttingDownGracefully {
      // First, too: what could not be opened was tried just now.
      try await Task.sleep(for: pause)
      do {
        try open()
        // A signal may have come during the pause or the attempt.
        let canStart = !Task.isShuttingDownGracefully
        return result.withLock { $0 = .success(canStart) }
      } catch let error as HubDatabaseError where error.passesByItself {
        continue
      } catch {
        return result.withLock { $0 = .failure(error) }
      }
    }
  }
}
