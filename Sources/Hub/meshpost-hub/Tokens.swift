// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import Hub
import UntrustedText

/// `meshpost-hub tokens`: a token for each gateway.
struct Tokens: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Manage the gateways' tokens.",
    discussion: """
      Each gateway has a token of its own, in a file of the folder `gateway_tokens`. With it that gateway sends its events and fetches what is \
      for it; it reads nothing else, and speaks for no other gateway. A hub that serves takes a change over within a second.
      """,
    subcommands: [List.self, Add.self, Remove.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List gateways that have tokens.")
    @OptionGroup var hub: HubOptions

    func run() throws {
      let folder = try Tokens.folder(hub)
      for token in folder.tokens { print("\(token.gateway)  \(Tokens.count(token.secrets.count))") }
      for fault in folder.faults { Console.error("warning: \(fault)") }
      if folder.tokens.isEmpty { print("none: add one with `meshpost-hub tokens add GATEWAY`") }
    }
  }

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Make a token for a gateway, and print it.",
      discussion: """
        To exchange a token: add another one, bring it to the gateway, and take the older one away with `tokens remove GATEWAY --keep-newest`.
        """)
    @OptionGroup var hub: HubOptions
    @Flag(help: "Also if the gateway has one already; both count then.") var another = false
    @Argument(help: "The gateway's id.") var gateway: String

    func validate() throws { try Tokens.check(gateway) }

    func run() throws {
      let folder = try Tokens.folder(hub)
      // A gateway that has such an id already keeps it, and its token can be exchanged.
      if !folder.tokens.contains(where: { $0.gateway == gateway }) {
        guard Name.isAllowedNew(gateway) else { throw ValidationError("a gateway's id must be \(Name.allowedNew)") }
        if let other = folder.tokens.first(where: { $0.gateway.lowercased() == gateway.lowercased() }) {
          throw failure("\(other.gateway) is there already: \(gateway) would look like the same gateway")
        }
      } else if !another {
        throw failure("\(gateway) has a token; `--another` makes a second one")
      }
      print(try Tokens.changing { () throws(HubConfiguration.Failure) in try folder.add(gateway) })
      let name = Escaping.argument(gateway)
      Console.error("On the gateway: sudo meshpost setup --name \(name), and this token when it asks for one.")
    }
  }

  struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Take a gateway's tokens away.",
      discussion: "What it has begun with them ends within a second. Its events stay.")
    @OptionGroup var hub: HubOptions
    @Flag(help: "All but the one that was added last.") var keepNewest = false
    @Argument(help: "The gateway's id.") var gateway: String

    func validate() throws { try Tokens.check(gateway) }

    func run() throws {
      let folder = try Tokens.folder(hub)
      guard let token = folder.tokens.first(where: { $0.gateway == gateway }) else {
        throw failure("\(gateway) has no token in \(folder.folder)", 67)  // EX_NOUSER
      }
      try Tokens.changing { () throws(HubConfiguration.Failure) in try folder.remove(gateway, keepsNewest: keepNewest) }
      let removed = token.secrets.count - (keepNewest ? 1 : 0)
      print("removed \(Tokens.count(removed)) of \(gateway)")
    }
  }

  // MARK: Shared

  /// The hub does not read hidden files.
  static func check(_ gateway: String) throws {
    guard Name.isAllowed(gateway), !gateway.hasPrefix(".") else {
      throw ValidationError("a gateway's id must be \(Name.allowed), and not begin with `.`")
    }
  }

  static func folder(_ hub: HubOptions) throws -> GatewayTokens {
    guard let location = try hub.configuration().gatewayTokens else {
      let example = "gateway_tokens = \"/etc/meshpost-hub/tokens\""
      throw failure("\(hub.config): gateway_tokens is not set; for example: \(example)", 78)  // EX_CONFIG
    }
    guard let folder = GatewayTokens(folder: location) else {
      throw failure("\(location) is not a folder that this user may read")
    }
    return folder
  }

  static func changing<Value>(_ work: () throws(HubConfiguration.Failure) -> Value) throws -> Value {
    do throws(HubConfiguration.Failure) {
      return try work()
    } catch {
      throw failure("\(error)", 73)  // EX_CANTCREAT
    }
  }

  static func count(_ tokens: Int) -> String { "\(tokens) \(tokens == 1 ? "token" : "tokens")" }
}
