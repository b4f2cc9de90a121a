--- The language server's client, the same for all versions of Neovim.
local M = {}

local NEW = vim.fn.has('nvim-0.11') == 1

--- Methods of a client take it as their first argument from 0.11 on.
function M.call(client, name, ...)
  if NEW then
    return client[name](client, ...)
  end
  return client[name](...)
end

--- @param bufnr integer? only a client that this buffer has
function M.client(bufnr)
  for _, client in ipairs((vim.lsp.get_clients or vim.lsp.get_active_clients)()) do
    if client.name == 'foretype' and (not bufnr or vim.lsp.buf_is_attached(bufnr, client.id)) then
      return client
    end
  end
end

--- Column in bytes of a column in the units that were agreed on; at most the end of the line.
function M.byte(client, line, character)
  local encoding = client.offset_encoding
  if encoding == 'utf-8' then
    return math.min(character, #line)
  end
  if NEW then
    return vim.str_byteindex(line, encoding, character, false)
  end
  local ok, index = pcall(vim.str_byteindex, line, character, encoding == 'utf-16')
  return ok and index or #line
end

--- Length of a text in the units of the protocol's own default.
function M.utf16_length(text)
  if NEW then
    return vim.str_utfindex(text, 'utf-16')
  end
  local _, units = vim.str_utfindex(text)
  return units
end

local function inside(root, folder)
  return folder == root or folder:sub(1, #root + 1) == root .. '/'
end

--- The program of a command, or nil: an absolute path, or a name that is found at an absolute place of the PATH outside of the
--- working directory. Who opens somebody's repository must not run what lies in it.
function M.program(name)
  local windows = vim.fn.has('win32') == 1
  local absolute = windows and '^%a:[\\/]' or '^/'
  local path = vim.fn.expand(name)
  if path:match(absolute) then
    return vim.fn.executable(path) == 1 and path or nil
  end
  if name:find('[\\/]') then
    return nil
  end
  local function real(folder)
    return (vim.loop.fs_realpath(folder) or folder):gsub('\\', '/')
  end
  local here, home = real(vim.fn.getcwd()), real(vim.loop.os_homedir())
  for _, folder in ipairs(vim.split(vim.env.PATH or '', windows and ';' or ':', { plain = true })) do
    local found = folder .. '/' .. name .. (windows and '.exe' or '')
    local own = inside(here, home) or not inside(here, real(folder))
    if folder:match(absolute) and own and vim.fn.executable(found) == 1 then
      return found
    end
  end
end

--- The command as it is run, or nil where there is no such program.
function M.command(cmd)
  local program = M.program(cmd[1])
  return program and vim.list_extend({ program }, vim.list_slice(cmd, 2)) or nil
end

return M
