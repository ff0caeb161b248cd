// SPDX-License-Identifier: MIT

import ControlShapes
import HTTP
import JSON
import Messaging
import UntrustedText

/// The control socket: HTTP/1.1 with JSON on a Unix socket. Documented in docs/control-socket.md.
///
/// Each request is answered in its connection's task, and cancelled when the client disconnects. `answer` dispatches to
/// the routes; `Answer.refusing` turns their errors into answers.
public final class ControlAPI {
  private let dependencies: Dependencies
  private let news = News()
  private let reads = ReadMarks()
  private let backup: BackupAPI
  /// On the socket, and, if there is a port for them, on the loopback address for metrics.
  private var servers: [HTTPServer] = []
  var followers: Int { news.count }

  /// `metricsPort`: a port on 127.0.0.1 that also serves `/metrics`; 0: none.
  public init(_ dependencies: Dependencies, location: String, group: String?, metricsPort: UInt16 = 0) throws {
    self.dependencies = dependencies
    backup = BackupAPI(dependencies)
    try listen(location, group, metricsPort)
  }

  private func listen(_ location: String, _ group: String?, _ metricsPort: UInt16) throws {
    let (loop, log) = (dependencies.loop, dependencies.log)
    servers = [
      try HTTPServer(location: location, group: group, on: loop, log: log) { request, responder in
        await self.serve(request, responder)
      }
    ]
    guard metricsPort > 0 else { return }
    do {
      servers.append(
        // Every user of the machine can connect, and reading metrics needs no body.
        try HTTPServer(loopbackPort: metricsPort, bodyLimit: 0, on: loop, log: log) { request, responder in
          await self.serveMetrics(request, responder)
        })
    } catch {
      stop()
      throw error
    }
  }

  /// Wakes clients that follow rows or states, because these may have changed.
  public func somethingIsNew() { news.tell() }

  /// The gateway's state for servers: only a few values that seldom change.
  public func stateJSON() -> [UInt8] {
    JSONWriter.object { StatusReport(dependencies: dependencies).writeState(to: &$0) }
  }

  /// Stops the servers. They retain this object, so its creator must call this.
  public func stop() {
    for server in servers { server.stop() }
    servers = []
  }

  // MARK: Requests

  /// Answers a request from the control socket, or from a browser that the pages have admitted.
  public func serve(_ request: HTTPRequest, _ responder: HTTPResponder) async {
    let reply = reply(responder)
    do {
      reply.give(try await answer(request, reply))
    } catch {
      reply.give(.refusing(error))
    }
  }

  private func serveMetrics(_ request: HTTPRequest, _ responder: HTTPResponder) async {
    guard request.path == "/metrics", Self.namesNobody(request.headers["Host"]) else {
      return reply(responder).give(.refusing(Refusal.notFound(.page(request.path))))
    }
    await serve(HTTPRequest("GET", "/metrics"), responder)
  }

  private func reply(_ responder: HTTPResponder) -> Reply {
    Reply(responder, news, dependencies.store, on: dependencies.loop)
  }

  /// A web page can point its own name to this machine and let the browser read the answers: then the request has that
  /// name. Numeric addresses and `localhost` cannot be such a name.
  static func namesNobody(_ host: String?) -> Bool {
    guard let host = host?.utf8 else { return true }
    if host.first == UInt8(ascii: "[") { return true }
    let name = host.prefix { $0 != UInt8(ascii: ":") }
    if String(name)?.lowercased() == "localhost" { return true }
    return name.allSatisfy { $0 == UInt8(ascii: ".") || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
  }

  private var status: StatusAPI { StatusAPI(dependencies: dependencies) }
  private var lists: ListsAPI { ListsAPI(dependencies) }
  private var messages: MessagesAPI { MessagesAPI(dependencies: dependencies) }
  private var conversations: ConversationsAPI {
    ConversationsAPI(dependencies: dependencies, messages: messages, reads: reads)
  }
  private var blocks: BlocksAPI { BlocksAPI(dependencies: dependencies, conversations: conversations) }
  private var deletion: DeletionAPI { DeletionAPI(dependencies: dependencies, conversations: conversations) }
  private var live: LiveAPI { LiveAPI(dependencies: dependencies, reads: reads) }
  private var messaging: MessagingAPI { MessagingAPI(dependencies: dependencies) }
  private var table: RadioTableAPI { RadioTableAPI(dependencies) }
  private var node: NodeAPI { NodeAPI(dependencies: dependencies) }
  private var radio: RadioAPI { RadioAPI(dependencies) }
  private var configuration: RadioConfigurationAPI { RadioConfigurationAPI(dependencies) }
  private var documents: DocumentAPI { DocumentAPI(dependencies: dependencies) }
  private var relay: RelayAPI { RelayAPI(dependencies) }
  private var doctor: DoctorAPI { DoctorAPI(dependencies: dependencies) }
  private var web: WebAPI { WebAPI(dependencies) }
  private var alerts: AlertsAPI { AlertsAPI(dependencies: dependencies) }

  private func answer(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let route = try Route(request)
    if let reason = route.refusal(of: request.query) { throw Refusal.invalid(reason) }
    return switch route {
    case .status: try status.show()
    case .metrics: try status.metrics()
    case .sync: try await status.sync(request, reply)
    case .startSync: try status.startSync(request)

    case .messages: try await messages.show(request, reply)
    case .deleteMessages: try await deletion.delete(RequestBody(request), news)
    case .conversations: try await conversations.list(request, reply, news)
    case .markRead: try await conversations.markRead(RequestBody(request), news)
    case .setLevel: try await conversations.setLevel(RequestBody(request), news)
    case .blocks: try await blocks.list(reply)
    case .addBlock: try await blocks.add(RequestBody(request), news)
    case .removeBlock: try await blocks.remove(RequestBody(request), news)
    case .live: try await live.follow(request, reply)
    case .contacts: try await lists.contacts(request, reply)
    case .channels: try await lists.channels(reply)
    case .readings: try await lists.readings(request, reply)
    case .airtime: try AirtimeAPI(dependencies: dependencies).show(request)
    case .radios: try await reply.rows(RadiosAPI.rows(dependencies.store))
    case .journal, .events: try await lists.journal(request, reply)
    case .packets: try await dependencies.taps.listen(.packets, reply)
    case .frames: try await dependencies.taps.listen(.frames, reply)

    case .resolve: try messaging.resolve(request)
    case .send: try await messaging.send(RequestBody(request))
    case .react: try await messaging.react(RequestBody(request))
    case .outgoing: try await messaging.outgoing(request, reply)
    case .attempts: try messaging.attempts(request)
    case .retryOutgoing: try await messaging.retry(request)
    case .cancelOutgoing: try messaging.cancel(request)
    case .adoptOutgoing: try await messaging.adopt(request)

    case .addContact: try await table.addContact(RequestBody(request))
    case .removeContact: try await table.removeContact(request)
    case .exportContact: try await table.exportContact(request)
    case .importContact: try await table.importContact(RequestBody(request))
    case .shareContact: try await table.shareContact(request)
    case .favouriteContact: try await table.setFavourite(RequestBody(request))
    case .commandsOfContact: try await table.setMayCommand(RequestBody(request))
    case .contactPath: try await table.path(RequestBody(request))
    case .putContact: try await configuration.putContact(RequestBody(request))
    case .addChannel: try await table.addChannel(RequestBody(request))
    case .removeChannel: try await table.removeChannel(request)
    case .setRegion: try await table.setRegion(RequestBody(request))
    case .sendData: try await messaging.sendData(RequestBody(request))
    case .putChannel: try await configuration.putChannel(RequestBody(request))

    case .logIn: try await node.logIn(RequestBody(request))
    case .logOut: try node.logOut(RequestBody(request))
    case .nodeStatus: try await node.ask(.status, RequestBody(request))
    case .telemetry: try await node.telemetry(RequestBody(request))
    case .neighbours: try await node.neighbours(RequestBody(request))
    case .nodeRegion: try await table.setNodeRegion(RequestBody(request))
    case .nodeRegions: try await node.regions(RequestBody(request))
    case .trace: try await node.trace(RequestBody(request))
    case .command: try await node.command(RequestBody(request))
    case .access: try await node.access(RequestBody(request))
    case .nodeClock: try await node.clock(RequestBody(request))
    case .takeSnapshot: try await SnapshotAPI(dependencies: dependencies).take(RequestBody(request), reply)
    case .snapshots: try await SnapshotAPI(dependencies: dependencies).list(request, reply)

    case .radio: try await configuration.show()
    case .setRadio: try await configuration.set(RequestBody(request))
    case .advert: try await configuration.advert(RequestBody(request))
    case .regionsAround: try await node.regionsAround()
    case .presets: configuration.presets()
    case .survey: try await RadioFactsAPI(dependencies: dependencies).survey(RequestBody(request))
    case .variables: try await RadioFactsAPI(dependencies: dependencies).showVariables()
    case .setVariable: try await RadioFactsAPI(dependencies: dependencies).setVariable(RequestBody(request))
    case .radioBackup: try await configuration.backup(reply)
    case .privateKey: try await configuration.privateKey(RequestBody(request))
    case .scan: try await radio.scan(request)
    case .pair: try await radio.pair(request)
    case .forget: try await radio.forget(request)

    case .documents: try documents.list(request)
    case .editDocument: try await documents.edit(RequestBody(request))
    case .nodeAlias: try await documents.editNode(.alias, RequestBody(request))
    case .nodeNote: try await documents.editNode(.note, RequestBody(request))
    case .nodeTags: try await documents.editNode(.tags, RequestBody(request))
    case .relayChannel: try await documents.editRelay(RequestBody(request))

    case .outbox: try relay.outbox()
    case .retryOutbox: try relay.retry(request)
    case .dropOutbox: try relay.drop(request)
    case .resumeOutbox: relay.resume()
    case .pauseUpstream: try relay.pause(request)
    case .skipUpstream: try await relay.skip(request)
    case .resumeUpstream: try relay.resume(request)
    case .testUpstream: try await relay.test(request)
    case .addUpstream: try relay.add(RequestBody(request))
    case .removeUpstream: try relay.remove(request)
    case .forgetUpstream: try relay.forget(request)

    case .alerts: try alerts.list(request)
    case .alertRules: alerts.rules()
    case .acknowledgeAlert: try await alerts.acknowledge(RequestBody(request))

    case .setWebPassword: try web.setPassword(RequestBody(request))
    case .doctor: try await doctor.show()
    case .bluetoothDoctor: try await doctor.showBluetooth()
    case .report: try await doctor.report()
    case .backup: try await backup.make(request, reply)
    }
  }

  // MARK: Shared by routes

  /// The number of rows of a page that are read at once.
  static let pageRows = 100

  static func line(_ body: (inout JSONWriter) -> Void) -> [UInt8] { JSONWriter.object(body) + [10] }

  /// The row for events that were deleted from the journal: the reader has all events up to `last`, and `seq` is the
  /// next one.
  static func missed(before seq: Int64, after last: Int64) -> [UInt8] {
    seq > last + 1 ? line { $0.field("missed", seq - last - 1) } : []
  }

  /// An integer from 0 to 2⁵³; other integers are clamped. `nil`: the parameter is absent. The route has refused what is no integer.
  static func number(_ request: HTTPRequest, _ name: String) -> Int64? {
    request.query[name].map { text in
      min(max(Int64(text) ?? (text.begins(with: "-") ? 0 : .max), 0), JSONValue.wholeNumbers.upperBound)
    }
  }
}

extension Route {
  fileprivate init(_ request: HTTPRequest) throws(Rejection) {
    let name = "\(request.method) \(request.path)"
    // HEAD is GET without a body, which the responder leaves out.
    guard let route = Route(rawValue: request.method.isExactly("HEAD") ? "GET \(request.path)" : name) else {
      let isKnown = Self.allCases.contains { $0.rawValue.ends(with: " \(request.path)") }
      throw isKnown ? Rejection(status: 405, message: name) : Rejection(status: 404, message: "not found: \(name)")
    }
    self = route
  }
}
