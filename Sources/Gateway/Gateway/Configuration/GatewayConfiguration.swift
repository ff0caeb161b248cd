// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import HTTP
import Messaging
import RadioSharing
import Relay
import Store
import Sync
import TOML
import Transport
import UntrustedText

/// The configuration of `meshpostd`, documented in deploy/meshpostd.toml.
public struct GatewayConfiguration: Sendable {
  /// All mistakes, one a line: `FILE: line N: mistake and allowed values`.
  public struct Failure: Error, CustomStringConvertible, Sendable {
    public let description: String
    /// Problems that would remain without these mistakes; see `lacks`.
    public private(set) var lacks: [String] = []
  }

  public var link: LinkAddress
  /// Beginning of the wanted radio's public key, hex; `nil`: any.
  public var radioKey: String?
  public var bluetooth: BluetoothOptions
  public var sync: Synchronizer.Settings
  public var store: Store.Settings
  public var controlSocket: String
  public var controlGroup: String?
  /// On 127.0.0.1; 0: only the control socket has metrics.
  public var metricsPort: UInt16
  public var logLevel: Log.Level
  /// The radio's battery is low below this, in millivolts; 0: it is not checked.
  public var lowBattery: UInt16
  public var alerts: AlertConfiguration
  public var messaging: MessagingConfiguration
  public var upstreams: [UpstreamSettings]
  public var proxies: [SharingSettings]
  /// `nil`: no pages are served.
  public var web: WebSettings?
  /// Warnings about accepted values, one a line.
  public var warnings: [String] = []
  /// Valid settings that cannot work now, one a line, as in `Failure`. Each stops only its upstream or hook.
  public private(set) var lacks: [String] = []
  var exchange: ChannelExchange.Settings
  /// The text of the configuration.
  private(set) var source: [UInt8] = []
  /// Why the file is refused, if this is the last configuration that worked.
  public var refusal: String?

}

extension GatewayConfiguration {
  /// `openStore`: as in the initializer for bytes.
  public init(file: String, openStore: String? = nil) throws(Failure) {
    guard let bytes = Files.read(file, most: Self.largestFile) else {
      throw Failure(description: "\(file): \(Self.whyUnread(file))")
    }
    try self.init(parsing: bytes, file: file, openStore: openStore)
  }

  private static func whyUnread(_ file: String) -> String {
    guard access(file, R_OK) == 0 else { return SystemError("open").message }
    var facts = stat()
    guard stat(file, &facts) == 0 else { return SystemError("stat").message }
    switch facts.st_mode & S_IFMT {
    case S_IFREG: return facts.st_size < largestFile ? "cannot be read" : "larger than 1 MiB"
    case S_IFDIR: return "it is a folder"
    default: return "it is no file"
    }
  }

  static let largestFile = 1 << 20
  static let usualStore = "/var/lib/meshpost/gateway.db"

  /// `openStore`: the store that is in use, whatever the file says: added upstreams are beside it.
  public init(parsing bytes: [UInt8], file: String, openStore: String? = nil) throws(Failure) {
    do {
      var root = TOMLReader(try TOMLParser.parse(bytes))
      let parsed = Self.read(&root)
      func lines(_ remarks: [TOMLError]) -> [String] {
        remarks.sorted { $0.line < $1.line }.map { "\(file): \($0)" }
      }
      guard root.errors.isEmpty, let parsed else {
        throw Failure(description: lines(root.errors).joined(separator: "\n"), lacks: lines(root.lacks))
      }
      self = parsed
      source = bytes
      let folder = UpstreamFolder(store: openStore ?? store.location).read()
      lacks = lines(root.lacks) + folder.lacks
      warnings = lines(root.warnings) + folder.warnings
      for added in folder.upstreams {
        guard !upstreams.contains(where: { $0.name == added.name }) else {
          throw Failure(description: "\(file): an upstream \"\(added.name)\" was also added by `meshpost upstream add`")
        }
        upstreams.append(added)
      }
      if hasHub { messaging.messenger.untilHubsTell = .seconds(20) }
      UpstreamSettings.separate(&upstreams)
      warnings += (rivals + UpstreamSettings.sharedAtBrokers(upstreams)).map { "\(file): \($0)" }
      var relay = root.table("relay")
      warnIdle(&relay)
      warnings += lines(relay.warnings)
    } catch let failure as Failure {
      throw failure
    } catch {
      throw Failure(description: "\(file): \(error)")
    }
  }

  /// Upstreams that compete at one hub, which keeps one live link of a gateway.
  private var rivals: [String] {
    upstreams.indices.compactMap { place in
      guard let rival = upstreams[place].rival(among: upstreams[..<place]) else { return nil }
      return
        "the upstreams \"\(rival)\" and \"\(upstreams[place].name)\" lead to one hub, which keeps one live link of a gateway: make one of them, or give one link = \"http\""
    }
  }

  private static func read(_ root: inout TOMLReader) -> GatewayConfiguration? {
    var key: String?
    var advert = SelfAdvert.Settings()
    let (link, bluetooth, sync) = section(&root, "radio") { table in
      key = radioKey(&table)
      advert = MessagingConfiguration.advert(&table)
      return radio(&table)
    }
    let id = section(&root, "gateway", gateway)
    var store = section(&root, "store", store)
    store.gatewayID = id
    let (socket, group, metricsPort) = section(&root, "control", control)
    let level = section(&root, "log", log)
    let lowBattery = section(&root, "power") { $0.integer("low_battery_mv", in: 0...20_000, default: 3400) }
    let alerts = section(&root, "alerts") { AlertConfiguration(reading: &$0) }
    var messaging = section(&root, "messaging") { MessagingConfiguration(reading: &$0, store: store.location) }
    messaging.readPolls(&root)
    messaging.routine.advert = advert
    section(&root, "contacts") { messaging.readContacts(&$0) }
    let exchange = section(&root, "relay") { table in
      let (settings, hold) = (relay(&table), table.integer("hold_s", in: 0...120, default: 10))
      if .seconds(hold) >= settings.longestAge {
        table.note("hold_s", "not below max_age_min: each message would be too old before it is sent")
      }
      messaging.messenger.exchangeHold = .seconds(hold)
      return settings
    }
    let proxies = ProxyConfiguration.read(&root, metricsPort: metricsPort)
    let web = section(&root, "web") { table in
      let web = WebConfiguration.read(&table)
      let doors = proxies.map { ("[[proxy]] \($0.name)", $0.address) } + [("metrics_port", .loopback(metricsPort))]
      if let web { ProxyConfiguration.checkDoor(web.address, doors, &table) }
      return web
    }
    var upstreams: [UpstreamSettings] = []
    for var table in root.tables("upstream") {
      if let upstream = UpstreamConfiguration.read(&table) {
        let isTwice = upstreams.contains { $0.name == upstream.name }
        if isTwice { table.note("name", "\"\(upstream.name)\" is used twice") }
        UpstreamConfiguration.checkDoors(upstream, [metricsPort, web?.address.port ?? 0], &table)
        UpstreamConfiguration.checkTopics(upstream, beside: upstreams, gateway: id, &table)
        upstreams.append(upstream)
      }
      table.finish()
      root.note(from: table)
    }
    upstreams += HookConfiguration.read(&root, socket: socket)
    root.finish()
    guard let link else { return nil }
    return GatewayConfiguration(
      link: link, radioKey: key, bluetooth: bluetooth, sync: sync, store: store, controlSocket: socket,
      controlGroup: group,
      metricsPort: metricsPort,
      logLevel: level, lowBattery: UInt16(clamping: lowBattery), alerts: alerts, messaging: messaging,
      upstreams: upstreams,
      proxies: proxies, web: web, exchange: exchange)
  }

  private static func section<Value>(
    _ root: inout TOMLReader, _ name: String, _ read: (inout TOMLReader) -> Value
  ) -> Value {
    var table = root.table(name)
    let value = read(&table)
    table.finish()
    root.note(from: table)
    return value
  }

  private static func radio(
    _ table: inout TOMLReader
  ) -> (LinkAddress?, BluetoothOptions, Synchronizer.Settings) {
    let text = table.string("link") ?? "auto:"
    let sync = Synchronizer.Settings(setsTime: table.bool("set_time", default: true))
    let bluetooth = bluetooth(&table)
    do {
      return (try LinkAddress(parsing: text), bluetooth, sync)
    } catch {
      table.note("link", error.description)
      return (nil, bluetooth, sync)
    }
  }

  private static func radioKey(_ table: inout TOMLReader) -> String? {
    guard let text = table.string("key")?.lowercased() else { return nil }
    if !(8...64).contains(text.utf8.count) || !text.utf8.allSatisfy({ "0123456789abcdef".utf8.contains($0) }) {
      table.note("key", "expected a prefix of the radio's public key, 8 to 64 hex digits")
    }
    return text
  }

  private static func bluetooth(_ table: inout TOMLReader) -> BluetoothOptions {
    var options = BluetoothOptions(
      adapter: table.string("adapter"), mayPowerOn: table.bool("power_on", default: true),
      mayUnblock: table.bool("unblock", default: false), mayPowerCycle: table.bool("power_cycle", default: false))
    let file = table.string("pin_file")
    var pin = table.string("pin")
    if let file {
      if pin != nil { table.note("pin_file", "pin and pin_file cannot be combined") }
      pin = SecretFile.read(file)
      if pin == nil { table.lack("pin_file", "\(file) cannot be read, or its first line is empty") }
    }
    guard let pin else { return options }
    options.pin = BluetoothOptions.pin(pin)
    guard options.pin == nil else { return options }
    // The value is a secret. A paired radio needs no PIN, so a bad file does not stop the start.
    let reason = "a PIN is a string of 6 digits, such as \"123456\""
    if file == nil { table.note("pin", reason) } else { table.lack("pin_file", reason) }
    return options
  }

  private static func gateway(_ table: inout TOMLReader) -> String? {
    guard let id = table.string("id") else { return nil }
    if !RelayMark.isGateway(id) {
      table.note("id", "\"\(id)\" is not allowed: 1 to 64 letters, digits, `.`, `_` and `-`, and not `.` or `..`")
    }
    return id
  }

  private static func store(_ table: inout TOMLReader) -> Store.Settings {
    let location = table.string("location") ?? usualStore
    if !location.hasPrefix("/") { table.note("location", "\"\(location)\" is not absolute") }
    let maxBytes = table.size("max_size", in: (4 << 20)...(1 << 40), default: 1 << 30)
    // A journal as large as the database would leave messages no room, for ever: what every server has is deleted only beyond its size.
    let wanted = table.size("journal_max_size", in: (1 << 20)...(1 << 40), default: min(256 << 20, maxBytes / 2))
    let journal = min(wanted, maxBytes / 2)
    if journal < wanted {
      table.warn("journal_max_size", "more than half of max_size: half of it, \(journal) bytes, is the limit")
    }
    let days = table.integer("journal_max_age_days", in: 1...36500, default: 90)
    let profile = table.choice("profile", of: StoreProfile.allCases.map(\.rawValue), default: "durable")
    return Store.Settings(
      location: location, maxSize: maxBytes, journalMaxSize: journal, journalMaxAge: days * 86400,
      messagesMax: table.integer("messages_max", in: 100...100_000_000, default: min(500_000, maxBytes / 2048)),
      nodesMax: table.integer("nodes_max", in: 100...1_000_000, default: min(5000, maxBytes / 2048)),
      profile: StoreProfile(rawValue: profile) ?? .durable)
  }

  private static func control(_ table: inout TOMLReader) -> (String, String?, UInt16) {
    let socket = table.string("socket") ?? "/run/meshpost/control.sock"
    if !socket.hasPrefix("/") { table.note("socket", "\"\(socket)\" is not absolute") }
    if socket.utf8.count > 107 { table.note("socket", "longer than 107 bytes, the limit of a Unix socket") }
    let group = table.string("group")
    if let group, getgrnam(group) == nil { table.note("group", "group \"\(group)\" does not exist") }
    let port = table.integer("metrics_port", in: 0...65535, default: 0)
    return (socket, group, UInt16(clamping: port))
  }

  private static func relay(_ table: inout TOMLReader) -> ChannelExchange.Settings {
    let isOn = table.bool("messages_from_hub", default: false)
    let channels = table.strings("channels")
    let minutes = table.integer("max_age_min", in: 1...1440, default: 30)
    let gateways = table.strings("gateways")
    if gateways.count > 64 { table.note("gateways", "\(gateways.count) names: at most 64 are allowed") }
    let perMinute = table.integer("messages_per_minute", in: 1...600, default: 6)
    return ChannelExchange.Settings(
      isOn: isOn, channels: channels, longestAge: .seconds(60 * minutes), gateways: gateways, perMinute: Int(perMinute))
  }

  private static func log(_ table: inout TOMLReader) -> Log.Level {
    Log.Level(name: table.choice("level", of: Log.Level.names, default: "info")) ?? .info
  }
}

extension UpstreamSettings {
  private var hasLink: Bool { if case .hub(isLive: true, _) = kind { true } else { false } }

  /// The name of another upstream with a link to the same hub, which keeps one live link of a gateway.
  func rival(among others: some Sequence<UpstreamSettings>) -> String? {
    guard hasLink else { return nil }
    return others.first { $0.hasLink && HTTPEndpoint.areOne($0.url, url) }?.name
  }
}
