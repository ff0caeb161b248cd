// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import MQTT
import ProxyTunnel
import Sockets
import Store
import UntrustedText

/// An upstream as the configuration describes it.
public struct UpstreamSettings: Equatable, Sendable {
  public enum Kind: Equatable, Sendable {
    /// `isLive`: over a WebSocket, if the network permits it; `keepAlive`: seconds between its pings.
    case hub(isLive: Bool, keepAlive: Int64)
    case webhook(secretFile: String?, template: BodyTemplate?, contentType: String, batches: Bool)
    case mqtt(MQTTSettings)
    case hook(HookSettings)
    /// An added upstream whose file has become invalid: it is stopped, and keeps its place in the journal.
    case unreadable(reason: String)
  }

  /// A program that is run for events. See docs/hooks.md.
  public struct HookSettings: Equatable, Sendable {
    /// The program, with its whole location, and its arguments.
    public var run: [String]
    /// The user that it runs as; `nil`: the daemon's own.
    public var user: String?
    public var timeout: Duration
    /// Bytes of address space.
    public var memory: Int64
    /// Sends the program's output as a reply to the message.
    public var replies: Bool
    /// The control socket, passed to the program.
    public var socket: String

    public init(
      run: [String], user: String?, timeout: Duration, memory: Int64, replies: Bool, socket: String
    ) {
      self.run = run
      self.user = user
      self.timeout = timeout
      self.memory = memory
      self.replies = replies
      self.socket = socket
    }
  }

  /// The settings for an MQTT broker besides its URL, `mqtt://HOST[:1883]` or `mqtts://HOST[:8883]`.
  public struct MQTTSettings: Equatable, Sendable {
    /// A feed of packets, sorted by the code of the nearest airport; `sendsRaw`: sends the bare bytes, too.
    public struct Observer: Equatable, Sendable {
      public var iata: String
      public var sendsRaw: Bool

      public init(iata: String, sendsRaw: Bool) {
        self.iata = iata
        self.sendsRaw = sendsRaw
      }
    }

    /// The content of a token that the radio signs: its audience, which is the broker's host, and the radio's owner.
    public struct RadioToken: Equatable, Sendable {
      public var audience: String
      public var owner: String?
      public var email: String?

      public init(audience: String, owner: String? = nil, email: String? = nil) {
        self.audience = audience
        self.owner = owner
        self.email = email
      }
    }

    public var user: String?
    public var passwordFile: String?
    public var clientID: String?
    public var certificate: String?
    public var key: String?
    /// Seconds between pings when nothing else is sent.
    public var keepAlive: UInt16 = 300
    /// The only permitted version; `nil`: 5, or 3.1.1 if that does not work.
    public var version: MQTTVersion?
    public var topic: TopicTemplate
    public var statusTopic: TopicTemplate
    public var template: BodyTemplate?
    /// Sends compressed batches in place of single events.
    public var isCompact = false
    public var commandTopic: TopicTemplate?
    /// Topics on which the gateway's other upstreams take commands.
    public var foreignCommandTopics: [TopicTemplate] = []
    /// Home Assistant's discovery prefix; `nil`: no discovery.
    public var homeAssistantPrefix: String?
    /// Nodes and channels for which Home Assistant gets an entity to send to.
    public var homeAssistantNotify: [String] = []
    /// Sends the packets that the radio hears to analyzers.
    public var observer: Observer?
    /// The radio signs the password for the broker.
    public var token: RadioToken?
    /// Seconds between readings of the radio's counters.
    public var statsInterval: Int64 = 300

    /// Versions by their names in the configuration.
    public static let versions: [String: MQTTVersion?] = ["auto": .none, "5": .v5, "3.1.1": .v3]
  }

  /// The server that a URL names; `nil`: it names none.
  private static func server(_ url: String) -> (scheme: String, host: String, tls: Bool)? {
    if let broker = broker(url) { return (url.pieces(at: ":", most: 2)[0], broker.host, broker.tls) }
    guard case .tcp(let host, _, let tls)? = HTTPEndpoint.parse(url, allowsQuery: true)?.endpoint else { return nil }
    return (tls ? "https" : "http", host, tls)
  }

  /// Whether others can read the traffic to this URL: it is not encrypted, and leaves this machine.
  public static func isOpen(_ url: String) -> Bool {
    server(url).map { !$0.tls && !HTTPEndpoint.isThisMachine($0.host) } ?? false
  }

  /// The broker that a URL names; `nil` where it names none.
  public static func broker(_ url: String) -> BrokerAddress? { BrokerAddress(url) }

  public var kind: Kind
  public var journal: Upstream.Settings
  public var url: String
  public var tokenFile: String?
  public var authorities: String?
  public var timeout: Duration = .seconds(30)
  /// Whether the upstream reaches its server through a proxy.
  public var proxy = ProxyChoice.environment
  /// Version of the gateway's program, for servers that ask.
  public var version = ""

  public var name: String { journal.name }

  /// The beginning of a hook's name, among upstreams and among origins of messages.
  public static let hookPrefix = OutgoingMessage.hookOrigin
  /// Whether an upstream of this name is a hook.
  public static func isHook(_ name: String) -> Bool { name.begins(with: hookPrefix) }

  /// The word in the configuration: `hub`, `webhook`, `mqtt`, `hook`; `unknown` if the file is invalid.
  public var kindName: String {
    switch kind {
    case .hub: "hub"
    case .webhook: "webhook"
    case .mqtt: "mqtt"
    case .hook: "hook"
    case .unreadable: "unknown"
    }
  }

  /// The server's address, for people. It shows only the host, because the rest may be a secret, as in a webhook's address.
  public var place: String { if case .hook = kind { url } else { ServerAddress.shown(url) } }

  // A hook's program is not a URL, and an unreadable upstream has none.
  var usesTLS: Bool { Self.server(url)?.tls ?? false }

  /// The proxy for the upstream's server; `nil`: none. It throws if the environment names an invalid one, because a direct connection would bypass
  /// the wanted proxy.
  public func serverProxy(
    in environment: ProxyEnvironment = .ofProcess()
  ) throws(TunnelSettings.Invalid) -> TunnelSettings? {
    guard let server = Self.server(url) else { return nil }
    return try proxy.proxy(in: environment, scheme: server.scheme, host: server.host)
  }

  /// Whether a text can be the URL of an upstream over HTTP.
  public static func isURL(_ text: String, allowsQuery: Bool = false) -> Bool {
    HTTPEndpoint.parse(text, allowsQuery: allowsQuery) != nil
  }

  /// Shows the server which program asks, and for which gateway.
  func authorize(_ headers: inout HTTPHeaders) throws(Verdict) {
    // The header costs 23 bytes.
    headers.add("User-Agent", "meshpostd")
    guard let tokenFile else { return }
    guard let token = SecretFile.read(tokenFile) else {
      throw .stopped(reason: "the token file \(tokenFile) cannot be read")
    }
    guard SecretFile.isToken(token) else {
      throw .stopped(reason: "the token file \(tokenFile) has a blank or a character that no token has")
    }
    headers.add("Authorization", "Bearer \(token)")
  }
}

extension UpstreamSettings {
  /// The other settings have their usual values.
  public init(_ kind: Kind, name: String, url: String) {
    self.init(kind: kind, journal: Upstream.Settings(name: name), url: url)
  }

  /// Equal, with texts compared byte by byte: to servers, é and e with an accent are different.
  func isExactly(_ other: UpstreamSettings) -> Bool {
    self == other && texts.elementsEqual(other.texts) { $0.isExactly($1) }
  }

  private var texts: [String] {
    let common = [journal.name, url, tokenFile, authorities]
    let own: [String?] =
      switch kind {
      case .hub: []
      case .webhook(let secretFile, _, let contentType, _): [secretFile, contentType]
      case .mqtt(let mqtt):
        [
          mqtt.user, mqtt.passwordFile, mqtt.clientID, mqtt.certificate, mqtt.key, mqtt.homeAssistantPrefix,
          mqtt.observer?.iata, mqtt.token?.audience, mqtt.token?.owner, mqtt.token?.email,
        ] + mqtt.homeAssistantNotify
      case .hook(let hook): [hook.user, hook.socket] + hook.run
      case .unreadable(let reason): [reason]
      }
    let way: [String] = if case .through(let proxy) = proxy { proxy.texts } else { [] }
    return (common + own).map { $0 ?? "" } + way
  }
}

extension UpstreamSettings.MQTTSettings {
  /// The other settings have their usual values.
  public init(_ topic: TopicTemplate, status: TopicTemplate) { self.init(topic: topic, statusTopic: status) }
}

/// Creates the carrier for an upstream.
public struct Carriers {
  let carrier: (UpstreamSettings, Store, EventLoop, Log) throws -> any Carrier

  /// Carriers to the servers that the settings name.
  public static var toServers: Carriers { Carriers(carrier: Upstream.carrier) }
}

extension Upstream {
  /// If the carrier cannot be built, the upstream exists, but is stopped: one bad file must not hold up the others.
  public convenience init(
    _ settings: UpstreamSettings, carriers: Carriers = .toServers, store: Store, on loop: EventLoop, log: Log
  ) throws(StoreError) {
    let build = {
      let troubles = settings.fileTroubles(isDaemon: true)
      guard troubles.isEmpty else {
        throw SetupError(description: troubles.map(\.description).joined(separator: "; "))
      }
      return try carriers.carrier(settings, store, loop, log)
    }
    let carrier: any Carrier
    do {
      carrier = try build()
    } catch {
      carrier = StoppedCarrier(settings, reason: "\(error)", build: build)
    }
    try self.init(settings.journal, carrier: carrier, store: store, on: loop, log: log)
  }

  fileprivate static func carrier(
    _ settings: UpstreamSettings, _ store: Store, _ loop: EventLoop, _ log: Log
  ) throws -> any Carrier {
    // An invalid proxy is an error: a direct connection would bypass it.
    let proxy = try settings.serverProxy()
    switch settings.kind {
    case .hub(let isLive, let keepAlive):
      return try HubConnection(
        settings, isLive: isLive, keepAlive: keepAlive, proxy: proxy, store: store, on: loop, log: log)
    case .webhook(let secretFile, let template, let contentType, let batches):
      return try WebhookCarrier(
        settings, secretFile: secretFile, template: template, contentType: contentType, batches: batches, proxy: proxy,
        store: store, on: loop)
    case .mqtt(let mqtt): return try MQTTCarrier(settings, mqtt, proxy: proxy, store: store, on: loop)
    case .hook(let hook):
      let kinds = settings.journal.filter.kinds
      return HookCarrier(
        hook, name: settings.name, takesGaps: kinds.isEmpty || kinds.contains(EventKind.gap.rawValue), store: store,
        on: loop, log: log.about(.upstream, settings.name))
    case .unreadable(let reason): throw SetupError(description: reason)
    }
  }
}
