// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import HTTP
import JSON
import ServiceManager
import Store

/// A start on a full, read-only or failing disk. Ending would mean a restart each second, without a socket that reports
/// the reason; messages stay in the radio in both cases.
extension Daemon {
  private static let pauseBetweenTries: Duration = .seconds(5)

  /// Returns the gateway when its store is writable; until then the control socket answers with the reason. `nil`: SIGTERM or SIGINT came meanwhile.
  public static func whenDiskAllows(_ configuration: GatewayConfiguration, file: String) throws(StartError) -> Daemon? {
    let manager = ServiceManager.ofThisProcess()
    let waited: (isStopped: Bool, opened: Store?)
    do {
      return try Daemon(configuration, file: file, manager: manager)
    } catch {
      guard let failure = error.waits else { throw error }
      waited = wait(configuration, failure, manager)
    }
    guard !waited.isStopped else { return nil }
    return try Daemon(configuration, file: file, opened: waited.opened, manager: manager)
  }

  /// Returns the store when it can be opened: only this store knows what was lost with the one before. Without one: it fails for another reason, which
  /// the next attempt reports, or a signal has stopped the wait.
  private static func wait(
    _ configuration: GatewayConfiguration, _ first: StoreError, _ manager: ServiceManager?
  ) -> (isStopped: Bool, opened: Store?) {
    let loop = EventLoop()
    let log = Log(level: configuration.logLevel, clock: loop.wallClock)
    var (failure, opened): (StoreError, Store?) = (first, nil)
    let server: HTTPServer?
    do throws(SystemError) {
      server = try HTTPServer(
        location: configuration.controlSocket, group: configuration.controlGroup, on: loop, log: log
      ) { _, responder in
        responder.respond(refusal(failure))
      }
    } catch {
      log.warning("the control socket: \(error)")
      server = nil
    }
    func tell() {
      log.error("the gateway cannot start: \(failure). \(failure.remedy) It tries again every \(pauseBetweenTries)")
      manager?.ready("waiting for the disk: \(failure)")
    }
    tell()
    var isStopped = false
    let signals = Signals([SIGTERM, SIGINT], on: loop) { _ in
      isStopped = true
      loop.stop()
    }
    loop.run {
      while true {
        // `try?`: nothing cancels it.
        try? await loop.sleep(for: pauseBetweenTries)
        manager?.lives()
        do throws(StoreError) {
          opened = try writableStore(configuration.store, on: loop)
          break
        } catch {
          guard error.isOfDisk else { break }
          guard error != failure else { continue }
          failure = error
          tell()
        }
      }
    }
    withExtendedLifetime(signals) {}
    server?.stop()
    if isStopped { manager?.stopping() }
    log.notice(isStopped ? "ending" : "the disk takes writes: starting")
    return (isStopped, opened)
  }

  private static func refusal(_ failure: StoreError) -> HTTPResponse {
    let body = JSONWriter.object { json in
      json.field("error", "the gateway waits for its disk: \(failure)")
      json.field("remedy", failure.remedy)
      json.field("code", "store")
    }
    return HTTPResponse(status: 503, headers: ["Content-Type": "application/json"], body: body + [10])
  }

  /// Opens the store and tries a write: a full disk refuses only writes.
  static func writableStore(_ settings: Store.Settings, on loop: EventLoop) throws(StoreError) -> Store {
    let store = try Store(settings, clocks: loop.clocks)
    try store.proveWritable()
    return store
  }
}
